"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 600px)");

  function coloured(spec, dark) {
    let text = JSON.stringify(spec);
    if (dark) for (const [light, other] of Object.entries(charts.colours)) text = text.replaceAll(light, other);
    return JSON.parse(text);
  }

  function draw(dark) {
    for (const [id, spec] of Object.entries(charts.specs)) {
      const shown = coloured(spec, dark);
      shown.config = dark ? charts.dark : charts.light;
      if (narrow.matches) {
        shown.height = Math.min(shown.height, 300);
        const legend = { ...shown.config.legend, columns: 2, layout: { bottom: { direction: "vertical" } } };
        shown.config = { ...shown.config, legend, axisX: { labelAngle: -40 } };
      }
      const actions = { export: true, source: false, compiled: false, editor: false };
      window.vegaEmbed("#" + id, shown, { actions, renderer: "svg" });
    }
  }

  function sortBy(table, column, descending) {
    const body = table.tBodies[0];
    const value = (row) => row.cells[column].dataset.v;
    const compare = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : (Number(x) > Number(y)) - (Number(x) < Number(y));
      return descending ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  }

  document.addEventListener("click", (event) => {
    const heading = event.target.closest("thead th");
    if (!heading) return;
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    sortBy(heading.closest("table"), heading.cellIndex, descending);
  });

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
    if (darkScheme.matches) draw(false);
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    if (darkScheme.matches) draw(true);
  });
  darkScheme.addEventListener("change", (event) => draw(event.matches));
  draw(darkScheme.matches);
})();
