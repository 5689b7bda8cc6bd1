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

for (const part of document.querySelectorAll(".copy")) {
  const line = part.querySelector("pre");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy " + part.dataset.what);
  button.addEventListener("click", async () => {
    const text = line ? line.textContent : part.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not a secure origin: http on another machine, or a file
      const area = document.createElement("textarea");
      area.value = text;
      part.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  if (line) line.after(button); else part.append(button);
}

const search = document.getElementById("search");
if (search) {
  const items = [...document.querySelectorAll("[data-words]")];
  const found = document.getElementById("found");
  const plain = (text) => text.toLowerCase().replace(/[^a-z0-9.+]+/g, " ").trim();
  // Names are apart by bars: "7800 XT" is found in "RX 7800 XT", not in "PRO W7800|RX 7900 XT".
  const names = items.map((item) => item.dataset.words.split("|").map((name) => plain(name).split(" ")));
  const matches = (name, words) =>
    words.every((word) => name.some((part) => part.startsWith(word))) || name.join("").includes(words.join(""));
  const filter = () => {
    const asked = plain(search.value);
    const all = asked ? asked.split(" ") : [];
    // What people write before a product's name tells nothing, as long as something else is left.
    const telling = all.filter((word) => !["amd", "radeon", "instinct", "graphics", "gpu", "tm"].includes(word));
    const words = telling.length ? telling : all;
    let count = 0;
    items.forEach((item, i) => {
      const hit = names[i].some((name) => matches(name, words));
      item.hidden = !hit;
      count += hit;
    });
    for (const group of document.querySelectorAll("[data-group]")) {
      group.hidden = words.length > 0 && !group.querySelector("[data-words]:not([hidden])");
      const folded = group.querySelector("details:has([data-words])");
      if (folded) folded.open = words.length > 0;
    }
    found.textContent = words.length ? `${count} of ${items.length}` : "";
  };
  search.closest("[hidden]").hidden = false;
  search.addEventListener("input", filter);
  // A link such as index.html#q=gfx1100 opens the page with a search.
  const asked = new URLSearchParams(location.hash.slice(1)).get("q");
  if (asked) search.value = asked;
  filter();
}
