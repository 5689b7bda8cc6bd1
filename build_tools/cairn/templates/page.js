"use strict";
// Everything on the page is there without this: it copies, filters, counts days and completes addresses.
for (const shown of document.querySelectorAll("[data-url]")) {
  const url = new URL(shown.dataset.url, document.baseURI).href;
  // The line is for a shell.
  shown.textContent = /^[A-Za-z0-9@%+=:,./_-]+$/.test(url) ? url : `'${url.replaceAll("'", "%27")}'`;
}

const HOUR = 3600000;
for (const time of document.querySelectorAll("time")) {
  const hours = Math.floor((Date.now() - Date.parse(time.dateTime)) / HOUR);
  if (!(hours >= 0)) continue;
  const [count, unit] = hours < 48 ? [hours, "hour"] : [Math.floor(hours / 24), "day"];
  const ago = document.createElement("span");
  ago.className = "ago";
  ago.textContent = hours === 0 ? " (within the last hour)" : ` (${count} ${unit}${count === 1 ? "" : "s"} ago)`;
  time.append(ago);
}

// What is overdue when the page is read, whoever should have written it anew.
for (const part of document.querySelectorAll("[data-due]")) part.hidden = !(Date.now() > Date.parse(part.dataset.due));

// Each part of the class `copy` gets a button that copies its `data-copy`, or else its line as it is by now.
for (const part of document.querySelectorAll(".copy")) {
  const line = part.querySelector("pre");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy " + part.dataset.what);
  button.addEventListener("click", async () => {
    const text = part.dataset.copy ?? line.textContent;
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not a secure origin: http on another machine, or a file
      const area = document.createElement("textarea");
      area.value = text;
      part.append(area);
      area.select();
      copied = document.execCommand("copy");
      area.remove();
    }
    button.textContent = copied ? "Copied" : "Select it by hand";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  if (line) line.after(button); else part.append(button);
}

const plain = (text) => text.toLowerCase().replace(/[^a-z0-9.+]+/g, " ").trim();
// Names are apart by bars: "7800 XT" is found in "RX 7800 XT", not in "PRO W7800|RX 7900 XT".
const byName = (item) => {
  const names = item.dataset.words.split("|").map((name) => plain(name).split(" "));
  return (typed) => {
    const all = plain(typed).split(" ").filter(Boolean);
    // What people write before a product's name tells nothing, as long as something else is left.
    const telling = all.filter((word) => !["amd", "radeon", "instinct", "graphics", "gpu", "tm"].includes(word));
    const words = telling.length ? telling : all;
    return names.some((name) =>
      words.every((word) => name.some((part) => part.startsWith(word))) || name.join("").includes(words.join("")));
  };
};
const byText = (item) => {
  const text = item.textContent.toLowerCase();
  return (typed) => typed.toLowerCase().split(/\s+/).every((word) => text.includes(word));
};

const search = document.getElementById("search");
if (search) {
  // What has no names is found by whatever stands in it.
  const named = [...document.querySelectorAll("[data-words]")];
  const items = named.length ? named : [...document.querySelectorAll("tbody tr")];
  const matches = items.map((item) => (named.length ? byName(item) : byText(item)));
  const foldable = new Map([...document.querySelectorAll("details:has([data-words])")].map((part) => [part, part.open]));
  const filter = () => {
    const asks = search.value.trim() !== "";
    items.forEach((item, i) => { item.hidden = asks && !matches[i](search.value); });
    for (const group of document.querySelectorAll("[data-group]")) {
      group.hidden = asks && !items.some((item) => !item.hidden && group.contains(item));
    }
    for (const [part, open] of foldable) {
      part.open = asks ? items.some((item) => !item.hidden && part.contains(item)) : open;
    }
    const count = items.filter((item) => !item.hidden).length;
    document.getElementById("found").textContent = asks ? `${count} of ${items.length}` : "";
  };
  search.closest("[hidden]").hidden = false;
  search.addEventListener("input", filter);
  // A link such as index.html#q=gfx1100 opens the page with a search.
  search.value = new URLSearchParams(location.hash.slice(1)).get("q") ?? search.value;
  filter();
}
