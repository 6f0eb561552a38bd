// Brings the graphs of a page to life: choose a graph, a least weight, a node. Without it the still pictures stay.
(() => {
  const held = document.getElementById("graph-data");
  if (!held) return;
  const data = JSON.parse(held.textContent);
  const element = (id) => document.getElementById(id);
  const [choice, slider, least, drawnText, find, names, about, said, legend] =
    ["graph", "threshold", "least", "drawn", "find", "node-names", "about", "said", "kinds"].map(element);
  const REACH = 9; // how near the pointer must be, in units of a picture
  const LISTED = 50;
  let graph = data.graphs[0]; // the one that is shown
  let shown = 0; // how many of its edges, heaviest first
  let picked = null; // the number of a node
  let at = -1; // which of its neighbours the arrow keys have reached

  // ---- words -------------------------------------------------------------------------------------------------------

  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en-US");
  const number = (value) => (value && Math.abs(value) < 1e-4 ? value.toExponential(3) : plain.format(value));
  const counted = (amount, thing) => `${whole.format(amount)} ${thing}${amount === 1 ? "" : "s"}`;
  const sure = (edge) => (edge.length > 4 ? `, ${data.sure} ${number(edge[4])}` : "");
  const told = (edge) =>
    `${data.nodes[edge[0]]} – ${data.nodes[edge[1]]}: weight ${number(edge[2])}${sure(edge)} (${data.kinds[edge[3]][1]})`;

  function make(tag, text = "", attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  // ---- pictures ----------------------------------------------------------------------------------------------------

  // A still picture becomes a live one: its dots stay, its edges are drawn from the data.
  function panel(svg) {
    const draw = (tag, attributes) => {
      const made = document.createElementNS(svg.namespaceURI, tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      return made;
    };
    const dots = new Map();
    for (const dot of svg.querySelectorAll(".node circle")) {
      dots.set(Number(dot.dataset.i), { x: Number(dot.getAttribute("cx")), y: Number(dot.getAttribute("cy")), dot });
    }
    svg.querySelectorAll("title").forEach((title) => title.remove());
    svg.querySelectorAll(".edge").forEach((group) => group.remove());
    const faint = 0.35 + 0.37 * data.crowd;
    const layers = data.kinds.map(([look]) => draw("g", { class: `edge ${look}`, fill: "none", "stroke-opacity": faint }));
    svg.querySelector(".node").before(...layers);
    const marks = svg.appendChild(draw("g", { class: "name picked", "text-anchor": "middle", "font-size": 13 }));
    svg.setAttribute("role", "application");
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-describedby", "keys");
    const tip = make("div", "", { class: "tip", hidden: "" });
    svg.after(tip);
    const drawn = { svg, dots, layers, marks, draw, tip, lines: [] };
    svg.addEventListener("pointermove", (event) => hover(drawn, event));
    svg.addEventListener("pointerleave", () => (tip.hidden = true));
    svg.addEventListener("click", (event) => pick(nearest(drawn, event).node ?? null));
    svg.addEventListener("keydown", walk);
    return drawn;
  }

  const panels = [...document.querySelectorAll("figure[data-live] svg")].map(panel);
  const heats = [...document.querySelectorAll("figure[data-heat] svg .dot")]; // positive edges, and negative ones
  const heat = heats[0];
  const isNegative = (edge) => data.kinds[edge[3]][0].startsWith("negative");

  function drawGraph() {
    for (const each of panels) {
      each.layers.forEach((layer) => layer.replaceChildren());
      each.lines = graph.edges.map(([a, b, weight]) => {
        const [from, to] = [each.dots.get(a), each.dots.get(b)];
        if (!from || !to) return null;
        const width = data.crowd * (0.5 + (4.5 * weight) / data.heaviest);
        return each.draw("path", { d: `M${from.x} ${from.y}L${to.x} ${to.y}`, "stroke-width": width.toFixed(2) });
      });
      // Weakest first, so that strong edges lie on top.
      for (let e = graph.edges.length - 1; e >= 0; e--) {
        if (each.lines[e]) each.layers[graph.edges[e][3]].append(each.lines[e]);
      }
    }
    shown = graph.edges.length;
  }

  function drawThreshold() {
    const weight = slider ? Number(slider.value) : 0;
    let count = graph.edges.findIndex((edge) => edge[2] < weight);
    if (count < 0) count = graph.edges.length;
    for (let e = Math.min(count, shown); e < Math.max(count, shown); e++) {
      for (const each of panels) if (each.lines[e]) each.lines[e].classList.toggle("off", e >= count);
    }
    shown = count;
    if (slider) {
      least.textContent = number(weight);
      slider.setAttribute("aria-valuetext", `weight ${number(weight)}`);
    }
    drawnText.textContent = [slider ? summary() : "", cut()].join(" ").trim();
    drawHeat();
    highlight();
  }

  function summary() {
    const kinds = data.kinds.map(() => 0);
    for (let e = 0; e < shown; e++) kinds[graph.edges[e][3]] += 1;
    const parts = data.kinds.map(([, name], k) => `${whole.format(kinds[k])} ${name}`).filter((_, k) => kinds[k]);
    const heavy = Number(slider.value) > 0 ? `, those of weight ${number(Number(slider.value))} or more` : "";
    const kind = parts.length > 1 ? `: ${parts.join(", ")}` : "";
    return `${whole.format(shown)} of ${counted(graph.edges.length, "edge")} of ${graph.name} drawn${heavy}${kind}.`;
  }

  function cut() {
    const [held, all] = [whole.format(graph.edges.length), whole.format(graph.total)];
    const nodes = data.nodes.length < data.all_nodes ? " and only the nodes of such edges" : "";
    return graph.total > graph.edges.length ? `This page holds only the strongest ${held} of ${all} edges of this graph${nodes}.` : "";
  }

  function drawHeat() {
    if (!heat || !data.order.length) return;
    const layers = heats.map((each) => [...each.children]);
    const place = [];
    data.order.forEach((node, index) => (place[node] = index));
    const top = graph.edges.length ? graph.edges[0][2] : 1;
    const depths = layers[0].length;
    const paths = layers.map((each) => each.map(() => []));
    for (let e = 0; e < shown; e++) {
      const [a, b, weight] = graph.edges[e];
      const depth = Math.min(depths - 1, Math.floor((depths * weight) / top));
      const side = paths[isNegative(graph.edges[e]) && heats.length > 1 ? 1 : 0];
      side[depth].push(`M${place[a]} ${place[b]}h1v1h-1z`, `M${place[b]} ${place[a]}h1v1h-1z`);
    }
    layers.forEach((each, side) => each.forEach((layer, depth) => layer.setAttribute("d", paths[side][depth].join(""))));
  }

  // ---- one node ----------------------------------------------------------------------------------------------------

  function neighbours() {
    const found = [];
    for (let e = 0; e < (slider ? shown : graph.edges.length); e++) {
      const [a, b] = graph.edges[e];
      if (a === picked || b === picked) found.push({ e, edge: graph.edges[e], node: a === picked ? b : a });
    }
    return found;
  }

  function highlight() {
    const near = picked === null ? [] : neighbours();
    const lit = new Set(near.map((each) => each.node));
    for (const each of panels) {
      each.svg.classList.toggle("picking", picked !== null);
      each.lines.forEach((line) => line && line.classList.remove("on", "reached"));
      near.forEach(({ e }, k) => each.lines[e] && each.lines[e].classList.add("on", ...(k === at ? ["reached"] : [])));
      for (const [node, { dot }] of each.dots) {
        dot.classList.toggle("on", node === picked || lit.has(node));
        dot.classList.toggle("at", node === picked);
      }
      const named = each.svg.querySelector(".name:not(.picked) text") ? [] : [picked, ...lit].slice(0, 25);
      each.marks.replaceChildren(
        ...named.filter((node) => each.dots.has(node)).map((node) => {
          const { x, y } = each.dots.get(node);
          const mark = each.draw("text", { x, y: y - 8 });
          const name = data.nodes[node];
          mark.textContent = name.length > 24 ? name.slice(0, 23) + "…" : name;
          return mark;
        }),
      );
    }
    list(near);
  }

  function list(near) {
    about.hidden = picked === null;
    if (picked === null) return about.replaceChildren();
    const title = make("h4", `${data.nodes[picked]}: ${counted(near.length, "neighbour")} in ${graph.name}`);
    const rows = make("ul");
    for (const { edge, node } of near.slice(0, LISTED)) {
      const button = make("button", data.nodes[node], { type: "button" });
      button.addEventListener("click", () => pick(node));
      const row = make("li");
      row.append(button, ` weight ${number(edge[2])}${sure(edge)}, ${data.kinds[edge[3]][1]}`);
      rows.append(row);
    }
    if (near.length > LISTED) rows.append(make("li", `and ${whole.format(near.length - LISTED)} more`));
    about.replaceChildren(title, rows);
  }

  function pick(node) {
    picked = node;
    at = -1;
    highlight();
    said.textContent = node === null ? "" : about.firstChild.textContent;
  }

  // ---- pointer, keys and words typed -------------------------------------------------------------------------------

  function nearest(each, event) {
    const box = each.svg.getBoundingClientRect();
    const scale = each.svg.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = { distance: REACH * Math.max(1, scale) };
    for (const [node, dot] of each.dots) {
      const distance = Math.hypot(dot.x - x, dot.y - y);
      if (distance < best.distance) best = { distance, node };
    }
    if (best.node !== undefined) return best;
    for (let e = 0; e < shown; e++) {
      const [from, to] = [each.dots.get(graph.edges[e][0]), each.dots.get(graph.edges[e][1])];
      if (!from || !to) continue;
      const [dx, dy] = [to.x - from.x, to.y - from.y];
      const along = Math.max(0, Math.min(1, ((x - from.x) * dx + (y - from.y) * dy) / (dx * dx + dy * dy || 1)));
      const distance = Math.hypot(from.x + along * dx - x, from.y + along * dy - y);
      if (distance < best.distance) best = { distance, edge: e };
    }
    return best;
  }

  function hover(each, event) {
    const { node, edge } = nearest(each, event);
    const text = node !== undefined ? data.nodes[node] : edge !== undefined ? told(graph.edges[edge]) : "";
    each.lines.forEach((line, e) => line && line.classList.toggle("reached", e === edge));
    show(each.tip, each.svg, event, text);
  }

  function show(tip, svg, event, text) {
    tip.hidden = !text;
    tip.textContent = text;
    const box = svg.parentElement.getBoundingClientRect();
    const room = Math.max(0, box.width - tip.offsetWidth);
    tip.style.left = `${Math.min(Math.max(0, event.clientX - box.left + 12), room)}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  // Up and down: from node to node. Left and right: along the edges of a node.
  function walk(event) {
    const order = data.order.length ? data.order : data.nodes.map((_, index) => index);
    const near = picked === null ? [] : neighbours();
    const step = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") pick(null);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const place = picked === null ? (step > 0 ? -1 : 0) : order.indexOf(picked);
      pick(order[(place + step + order.length) % order.length]);
    } else if (step && near.length) {
      at = at < 0 ? (step > 0 ? 0 : near.length - 1) : (at + step + near.length) % near.length;
      highlight();
      said.textContent = told(near[at].edge);
    } else if (event.key === "Enter" && at >= 0) pick(near[at].node);
    else return;
    event.preventDefault();
  }

  function search(final) {
    const wanted = find.value.trim().toLowerCase();
    if (!wanted) return pick(null);
    const lower = data.nodes.map((name) => name.toLowerCase());
    const begin = lower.flatMap((name, node) => (name.startsWith(wanted) ? [node] : []));
    const inside = lower.flatMap((name, node) => (name.includes(wanted) && !name.startsWith(wanted) ? [node] : []));
    const found = [...begin, ...inside];
    const exact = lower.indexOf(wanted);
    if (exact >= 0 || found.length === 1 || (final && found.length)) return pick(exact >= 0 ? exact : found[0]);
    picked = null;
    highlight();
    about.hidden = false;
    const rows = make("ul");
    for (const node of found.slice(0, LISTED)) {
      const button = make("button", data.nodes[node], { type: "button" });
      button.addEventListener("click", () => pick(node));
      rows.append(make("li"));
      rows.lastChild.append(button);
    }
    about.replaceChildren(make("h4", found.length ? `${counted(found.length, "node")} match` : "No node has this in its name."), rows);
    said.textContent = about.firstChild.textContent;
  }

  // ---- begin -------------------------------------------------------------------------------------------------------

  data.graphs.forEach((each, index) => choice.append(make("option", each.name, { value: index })));
  data.nodes.slice(0, 1000).forEach((name) => names.append(make("option", "", { value: name })));
  data.kinds.forEach(([look, name]) => legend.append(make("li", name, { class: look })));
  choice.addEventListener("change", () => {
    graph = data.graphs[Number(choice.value)];
    drawGraph();
    drawThreshold();
  });
  if (slider) {
    slider.max = data.heaviest;
    let asked = 0;
    slider.addEventListener("input", () => {
      cancelAnimationFrame(asked);
      asked = requestAnimationFrame(drawThreshold);
    });
  }
  find.addEventListener("input", () => search(false));
  find.addEventListener("keydown", (event) => event.key === "Enter" && search(true));
  if (heat && data.order.length) {
    const svg = heat.closest("svg");
    const tip = make("div", "", { class: "tip", hidden: "" });
    svg.after(tip);
    svg.addEventListener("pointerleave", () => (tip.hidden = true));
    svg.addEventListener("pointermove", (event) => {
      const box = heat.closest("svg").querySelector(".frame").getBoundingClientRect();
      const [column, row] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map(
        (share) => data.order[Math.floor(share * data.order.length)],
      );
      if (row === undefined || column === undefined) return (tip.hidden = true);
      const edge = graph.edges.slice(0, shown).find(([a, b]) => (a === row && b === column) || (a === column && b === row));
      show(tip, svg, event, edge ? told(edge) : `${data.nodes[row]} – ${data.nodes[column]}: no edge`);
    });
  }
  document.querySelectorAll(".still").forEach((each) => each.remove());
  element("explorer").hidden = false;
  drawGraph();
  drawThreshold();
  document.documentElement.dataset.ready = "graph";
})();
