// Brings the graphs of a page to life: choose a graph, a least weight, a node; look closer; save what is drawn. Without it
// the still pictures stay.
(() => {
  const held = document.getElementById("graph-data");
  if (!held) return;
  const data = JSON.parse(held.textContent);
  const element = (id) => document.getElementById(id);
  const [choice, slider, least, drawnText, find, names, about, said, legend] =
    ["graph", "threshold", "least", "drawn", "find", "node-names", "about", "said", "kinds"].map(element);
  const REACH = 9; // how near the pointer must be, in units of a picture
  const LISTED = 50;
  const [CLOSEST, NAMED] = [20, 40]; // the largest zoom, and how many nodes in sight may show their names
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
    const { width, height } = svg.viewBox.baseVal;
    const drawn = { svg, dots, layers, marks, draw, tip, lines: [], size: [width, height], view: { x: 0, y: 0, zoom: 1 } };
    let held = null; // where the picture is held by the pointer
    let moved = false;
    svg.addEventListener("pointermove", (event) => {
      if (!held) return hover(drawn, event);
      const scale = width / drawn.view.zoom / svg.getBoundingClientRect().width;
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      moved ||= Math.hypot(dx, dy) > 4;
      if (moved) look(drawn, held.view.x - dx * scale, held.view.y - dy * scale, drawn.view.zoom);
    });
    svg.addEventListener("pointerleave", () => (tip.hidden = true));
    svg.addEventListener("pointerdown", (event) => {
      moved = false;
      if (drawn.view.zoom === 1 || event.button !== 0) return;
      held = { x: event.clientX, y: event.clientY, view: { ...drawn.view } };
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", () => (held = null));
    svg.addEventListener("pointercancel", () => (held = null));
    // With Ctrl alone, as maps in pages have it: without, the wheel scrolls the page.
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const [x, y] = spot(drawn, event);
      closer(drawn, Math.exp(-event.deltaY / 300), x, y);
    }, { passive: false });
    svg.addEventListener("click", (event) => moved || pick(nearest(drawn, event).node ?? null));
    svg.addEventListener("keydown", (event) => steer(drawn, event) || walk(event));
    return drawn;
  }

  const panels = [...document.querySelectorAll("figure[data-live] svg")].map(panel);
  const heats = [...document.querySelectorAll("figure[data-heat] svg .dot")]; // positive edges, and negative ones
  const heat = heats[0];
  const isNegative = (edge) => data.kinds[edge[3]][0].startsWith("negative");

  // ---- looking closer ----------------------------------------------------------------------------------------------

  function look(each, x, y, zoom) {
    const [width, height] = each.size;
    zoom = Math.min(CLOSEST, Math.max(1, zoom));
    const [w, h] = [width / zoom, height / zoom];
    each.view = { x: Math.min(Math.max(0, x), width - w), y: Math.min(Math.max(0, y), height - h), zoom };
    each.svg.setAttribute("viewBox", `${each.view.x} ${each.view.y} ${w} ${h}`);
    each.svg.classList.toggle("zoomed", zoom > 1);
    for (const { dot } of each.dots.values()) dot.style.transform = `scale(${1 / Math.sqrt(zoom)})`;
    nameNodes(each);
  }

  // Where the pointer is, in the units of the picture.
  function spot(each, event) {
    const box = each.svg.getBoundingClientRect();
    const scale = each.size[0] / each.view.zoom / box.width;
    return [each.view.x + (event.clientX - box.left) * scale, each.view.y + (event.clientY - box.top) * scale];
  }

  // Zoom around a place, which keeps where it is: the middle, if none is named.
  function closer(each, factor, x, y) {
    const { view, size } = each;
    const to = Math.min(CLOSEST, Math.max(1, view.zoom * factor));
    x ??= view.x + size[0] / view.zoom / 2;
    y ??= view.y + size[1] / view.zoom / 2;
    look(each, x - ((x - view.x) * view.zoom) / to, y - ((y - view.y) * view.zoom) / to, to);
  }

  function steer(each, event) {
    const { view, size } = each;
    const far = 0.2 * (size[0] / view.zoom);
    const way = { ArrowDown: [0, far], ArrowUp: [0, -far], ArrowRight: [far, 0], ArrowLeft: [-far, 0] }[event.key];
    if (event.key === "+" || event.key === "=") closer(each, 1.5);
    else if (event.key === "-") closer(each, 1 / 1.5);
    else if (event.key === "0") look(each, 0, 0, 1);
    else if (event.shiftKey && way) look(each, view.x + way[0], view.y + way[1], view.zoom);
    else return false;
    event.preventDefault();
    return true;
  }

  // The names of the node that was picked and its neighbours, or of all nodes in sight once these are few.
  function nameNodes(each) {
    const { view, size } = each;
    const seen = ([, { x, y }]) =>
      x >= view.x && y >= view.y && x <= view.x + size[0] / view.zoom && y <= view.y + size[1] / view.zoom;
    let named = [];
    if (!each.svg.querySelector(".name:not(.picked) text")) {
      if (picked !== null) named = [picked, ...neighbours().map(({ node }) => node)].slice(0, 25);
      else if (view.zoom > 1) named = [...each.dots].filter(seen).map(([node]) => node);
      if (picked === null && named.length > NAMED) named = [];
    }
    each.marks.style.fontSize = `${13 / view.zoom}px`;
    each.marks.replaceChildren(
      ...named.filter((node) => each.dots.has(node)).map((node) => {
        const { x, y } = each.dots.get(node);
        const mark = each.draw("text", { x, y: y - 8 / view.zoom });
        const name = data.nodes[node];
        mark.textContent = name.length > 24 ? name.slice(0, 23) + "…" : name;
        return mark;
      }),
    );
  }

  // ---- saving ------------------------------------------------------------------------------------------------------

  function save(text, kind, ending) {
    const link = make("a", "", { download: graph.name.replace(/[^\p{L}\p{N}._-]+/gu, "_") + ending });
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // A picture for a program that does not know this page's style sheet: as it is seen, on its own paper.
  function pictureOf(each) {
    const copy = each.svg.cloneNode(true);
    const [width, height] = each.size;
    const inside = [each.svg, copy].map((svg) => [...svg.querySelectorAll("*")]);
    inside[0].forEach((was, place) => {
      const style = getComputedStyle(was);
      if (style.display === "none") return inside[1][place].setAttribute("display", "none");
      for (const name of ["fill", "stroke", "stroke-opacity", "stroke-dasharray", "fill-opacity", "font-size"]) {
        inside[1][place].setAttribute(name, style.getPropertyValue(name));
      }
    });
    copy.querySelectorAll("[display=none]").forEach((gone) => gone.remove());
    const paper = getComputedStyle(each.svg.closest("section")).backgroundColor;
    copy.prepend(each.draw("rect", { x: each.view.x, y: each.view.y, width: "100%", height: "100%", fill: paper }));
    for (const name of ["tabindex", "role", "aria-describedby", "class"]) copy.removeAttribute(name);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.setAttribute("font-family", "sans-serif");
    return new XMLSerializer().serializeToString(copy);
  }

  // The edges that are shown, as a run folder's own files have them, and what each is called here.
  function table() {
    const signed = data.kinds.some(([look]) => look.startsWith("negative"));
    const known = graph.edges.some((edge) => edge.length > 4);
    // As in core/spreadsheet.py: a name that a spreadsheet would compute as a formula gets an apostrophe in front.
    const plain = (text) => text.replace(/(^|[;\t\r\n])(?='*[=+\-@＝＋－＠\t\r].)/gs, "$1'");
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const cell = (value) => (typeof value === "string" ? quoted(plain(value)) : value);
    const rows = [["source", "target", "weight", ...(signed ? ["sign"] : []), ...(known ? [data.sure] : []), "kind"]];
    for (const edge of graph.edges.slice(0, slider ? shown : graph.edges.length)) {
      const [a, b, weight, kind, sure = ""] = edge;
      const more = [...(signed ? [isNegative(edge) ? -1 : 1] : []), ...(known ? [sure] : [])];
      rows.push([data.nodes[a], data.nodes[b], weight, ...more, data.kinds[kind][1]]);
    }
    return rows.map((row) => row.map(cell).join(",") + "\n").join("");
  }

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
      nameNodes(each);
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
    const [x, y] = spot(each, event);
    const scale = each.size[0] / each.svg.getBoundingClientRect().width;
    let best = { distance: (REACH * Math.max(1, scale)) / each.view.zoom };
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
  const on = (id, act) => element(id) && element(id).addEventListener("click", act);
  on("closer", () => panels.forEach((each) => closer(each, 1.5)));
  on("further", () => panels.forEach((each) => closer(each, 1 / 1.5)));
  on("entire", () => panels.forEach((each) => look(each, 0, 0, 1)));
  on("save-svg", () => save(pictureOf(panels[0]), "image/svg+xml", ".svg"));
  on("save-csv", () => save(table(), "text/csv", ".csv"));
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
