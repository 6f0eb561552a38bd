// Every table with several rows can be sorted by its columns, and what is long is shown in pages. Without this script, and
// in print, tables keep their order and everything is there.
(() => {
  const NARROW = matchMedia("(max-width: 40rem)").matches;
  const ROWS = NARROW ? 8 : 12;
  const PICTURES = NARROW ? 2 : 6;
  const RAISED = { "⁻": "-", "⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9" };

  // The number that a cell begins with, as the page writes numbers; null where there is none.
  function number(text) {
    if (/^(∞|none\b|no protection)/.test(text)) return Infinity;
    if (text.startsWith("−∞")) return -Infinity;
    if (text === "no better") return 0;
    const found = /^(?:[±ε=]\s*)*([−-]?[\d,]+(?:\.\d+)?)(?:\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?/.exec(text);
    if (!found) return null;
    let value = found[1].replaceAll(",", "").replace("−", "-");
    let power = found[2];
    const bare = /^10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/.exec(text);
    if (bare) [value, power] = ["1", bare[1]];
    const size = Number(value + (power ? "e" + [...power].map((sign) => RAISED[sign]).join("") : ""));
    return text.endsWith(" worse") ? -size : size;
  }

  // Shows some of the parts of a long whole, with buttons after `place` to turn the pages or show all.
  function paged(parts, size, name, place) {
    if (parts().length <= size + size / 2) return () => {};
    const box = document.createElement("div");
    const where = document.createElement("span");
    box.className = "pager small";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Pages: ${name}`);
    where.setAttribute("role", "status");
    let first = 0;
    let all = false;
    function show(from) {
      const each = parts();
      first = Math.max(0, Math.min(from, size * Math.floor((each.length - 1) / size)));
      const last = all ? each.length : Math.min(first + size, each.length);
      if (all) first = 0;
      each.forEach((part, place) => part.classList.toggle("away", place < first || place >= last));
      where.textContent = `${first + 1} to ${last} of ${each.length}`;
      before.disabled = first === 0;
      after.disabled = last === each.length;
      whole.textContent = all ? "Show pages" : "Show all";
    }
    function button(text, act) {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.addEventListener("click", act);
      return made;
    }
    const before = button("Previous", () => show(first - size));
    const after = button("Next", () => show(first + size));
    const whole = button("Show all", () => {
      all = !all;
      show(0);
    });
    box.append(before, where, after, whole);
    place.after(box);
    show(0);
    return () => show(0);
  }

  function sort(table, column, direction) {
    for (const body of table.tBodies) {
      const keyed = [...body.rows].map((row) => {
        const text = row.cells[column] ? row.cells[column].textContent.trim() : "";
        return { row, text, value: number(text), missing: text === "" || text === "–" };
      });
      const numeric = keyed.every((key) => key.missing || key.value !== null);
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      keyed.sort((a, b) => {
        if (a.missing || b.missing) return a.missing - b.missing; // Cells without a value stay below.
        const found = numeric ? order(a.value, b.value) : a.text.localeCompare(b.text, "en", { numeric: true });
        return direction * found;
      });
      body.append(...keyed.map((key) => key.row));
    }
  }

  for (const table of document.querySelectorAll("table")) {
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    if (table.dataset.fixed !== undefined || ![...table.tBodies].some((body) => body.rows.length > 1)) continue;
    const region = table.closest(".scroll") || table;
    const rows = () => [...table.tBodies].flatMap((body) => [...body.rows]);
    const turn = paged(rows, ROWS, region.getAttribute("aria-label") || "table", region);
    heads.forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        sort(table, column, rising ? 1 : -1);
        turn();
      });
    });
  }
  for (const box of document.querySelectorAll(".multiples")) paged(() => [...box.children], PICTURES, "pictures", box);
})();
