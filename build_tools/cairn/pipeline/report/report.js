"use strict";
// Every element with the class `copy` gets a button that copies its `data-copy`.
for (const place of document.querySelectorAll(".copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.setAttribute("aria-label", "copy " + place.dataset.what);
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(place.dataset.copy);
    } catch {
      // No clipboard for pages that are not served securely: the old way, through a selection.
      const field = document.createElement("textarea");
      field.value = place.dataset.copy;
      document.body.append(field);
      field.select();
      copied = document.execCommand("copy");
      field.remove();
    }
    button.textContent = copied ? "copied" : "select it by hand";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  place.append(button);
}
