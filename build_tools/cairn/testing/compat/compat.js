"use strict";
// Every row is there without this: it leaves out those that have none of the words.
const search = document.getElementById("search");
const rows = [...document.querySelectorAll("tbody tr")];
const count = document.getElementById("count");
const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  for (const part of document.querySelectorAll("[data-part]")) {
    part.hidden = words.length > 0 && !part.querySelector("tbody tr:not([hidden])");
  }
  count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
};
search.closest("[hidden]").hidden = false;
search.addEventListener("input", filter);
// A link such as compat.html#q=unsupported opens the page with a search.
const asked = new URLSearchParams(location.hash.slice(1)).get("q");
if (asked) { search.value = asked; filter(); }
