// Tables that sort, filter by words and by a column's values, and fold rows of data movement away.
"use strict";

(() => {
  const UNITS = { kB: 1e3, MB: 1e6, GB: 1e9, "µs": 1e-3, "%": 1, dB: 1 };
  const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i;

  /** The number that a cell begins with, in one unit a column; undefined for an empty one. */
  function numberOf(text) {
    const cell = text.trim();
    if (!cell) return undefined;
    if (/^(equal|infinite|inf|all)$/.test(cell)) return Infinity;
    if (/^-inf/.test(cell)) return -Infinity;
    const found = NUMBER.exec(cell);
    if (!found) return undefined;
    const unit = cell.slice(found[0].length).trim().split(" ")[0];
    return Number(found[0]) * (UNITS[unit] ?? 1);
  }

  /** Order of two cells; empty ones come last whatever the direction. */
  function compare(a, b, sign) {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * (typeof a === "number" ? Math.sign(a - b) || 0 : a.localeCompare(b, "en", { numeric: true }));
  }

  function prepare(table) {
    const body = table.tBodies[0];
    const given = [...body.rows];
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    const tools = table.closest(".grid").querySelector(".tools");

    function sort(column) {
      const before = heads[column].getAttribute("aria-sort");
      // Numbers begin with the largest, names with A; a third press gives the order of the file back.
      const numeric = heads[column].classList.contains("number");
      const order = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      const next = order[(order.indexOf(before) + 1) % order.length];
      heads.forEach((head) => head.setAttribute("aria-sort", "none"));
      heads[column].setAttribute("aria-sort", next);
      let rows = given;
      if (next !== "none") {
        const sign = next === "ascending" ? 1 : -1;
        const keyed = given.map((row) => {
          const text = row.cells[column].textContent;
          return { row, key: numeric ? numberOf(text) : text.trim() || undefined };
        });
        rows = keyed.sort((a, b) => compare(a.key, b.key, sign)).map((entry) => entry.row);
      }
      body.append(...rows);
      table.closest(".scroll").scrollTop = 0;
    }

    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => sort(column)));
    if (!tools) return;

    const words = tools.querySelector("input[type=search]");
    const choices = [...tools.querySelectorAll("select")];
    const fold = tools.querySelector("input[type=checkbox]");
    const count = tools.querySelector("output");
    const texts = given.map((row) => row.textContent.toLowerCase());

    function filter() {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fitting = given.filter((row, index) => {
        const fits =
          wanted.every((word) => texts[index].includes(word)) &&
          choices.every((one) => !one.value || row.cells[one.dataset.column].textContent.trim() === one.value);
        row.classList.toggle("dropped", !fits);
        return fits;
      });
      // Who looks for data movement alone finds it, folded or not.
      const others = fitting.filter((row) => !row.classList.contains("movement"));
      const folded = fold !== null && !fold.checked && others.length > 0;
      table.classList.toggle("folded", folded);
      count.textContent = `${(folded ? others : fitting).length} of ${given.length} rows`;
    }

    words.addEventListener("input", filter);
    choices.forEach((choice) => choice.addEventListener("change", filter));
    fold?.addEventListener("change", filter);
    filter(); // a browser that goes back keeps what was typed
  }

  document.querySelectorAll(".grid table").forEach(prepare);
})();
