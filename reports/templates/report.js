"use strict";
(() => {
  const form = document.getElementById("filter");
  const search = document.getElementById("search");
  const boxes = [...form.querySelectorAll("input[name=result]")];
  const rows = [...document.querySelectorAll("tbody[data-result]")];
  const areas = [...document.querySelectorAll("section.area")];
  const texts = new Map();

  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = boxes.filter((box) => box.checked).map((box) => box.value);
    let shown = 0;
    for (const row of rows) {
      const fits = (!wanted.length || wanted.includes(row.dataset.result))
        && words.every((word) => textOf(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    for (const area of areas) area.hidden = !area.querySelector("tbody[data-result]:not([hidden])");
    document.getElementById("shown").textContent = `${shown} of ${rows.length} shown`;
    document.getElementById("nothing").hidden = shown > 0;
  };

  /* A link to a requirement or check always leads to something visible. */
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const row = target && target.closest("tbody[data-result]");
    if (!row) return;
    if (row.hidden) {
      form.reset();
      apply();
    }
    const details = row.querySelector("details");
    if (details) details.open = true;
    target.scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => requestAnimationFrame(apply));
  document.getElementById("expand").addEventListener("click", () => {
    for (const details of document.querySelectorAll("tbody[data-result]:not([hidden]) tr.detail > td > details")) {
      details.open = true;
    }
  });
  document.getElementById("collapse").addEventListener("click", () => {
    for (const details of document.querySelectorAll("tbody[data-result] details")) details.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(input|textarea)$/i.test(document.activeElement.tagName)) {
      event.preventDefault();
      search.focus();
    }
  });
  window.addEventListener("hashchange", reveal);
  apply();
  reveal();
})();
