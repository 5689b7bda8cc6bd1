"use strict";
for (const shown of document.querySelectorAll("[data-url]")) {
  const url = new URL(shown.dataset.url, document.baseURI).href;
  shown.textContent = /^[A-Za-z0-9@%+=:,./_-]+$/.test(url) ? url : `'${url.replaceAll("'", "%27")}'`;
}
const add = (part) => {
  const code = part.querySelector("code"), button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.setAttribute("aria-label", "copy " + code.textContent);
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  code.after(button);
};
const provenance = (link) => {
  const button = document.createElement("button");
  button.setAttribute("formaction", new URL(link.dataset.provenance || link.dataset.keyProvenance, document.baseURI).href);
  button.textContent = "provenance";
  button.setAttribute("aria-label", "provenance of " + link.textContent);
  link.parentElement.querySelector(".copy").append(button);
};
document.querySelectorAll("pre.line").forEach(add);
for (const version of document.querySelectorAll("details")) {
  const fill = () => {
    if (!version.open || version.dataset.done) return;
    version.dataset.done = "1";
    version.querySelectorAll(".copy").forEach(add);
    version.querySelectorAll("a[data-provenance], a[data-key-provenance]").forEach(provenance);
  };
  version.addEventListener("toggle", fill);
  fill();
}
