// While an experiment runs its panel asks again and again: says so where nobody answers, and takes it back.
const lost = document.querySelector("#lost");

function told(isLost) {
  if (lost.hidden === isLost) lost.hidden = !isLost;
}

document.body.addEventListener("htmx:sendError", () => told(true));
document.body.addEventListener("htmx:timeout", () => told(true));
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.xhr?.status) told(event.detail.xhr.status >= 500);
});
