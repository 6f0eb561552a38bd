// Every table with several rows can be sorted by its columns. Without this script tables keep their order.
(() => {
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
      });
    });
  }
})();
