// While an experiment runs, its panel polls. Show a note if the server does not answer, and hide it once it does.
const lost = document.querySelector("#lost");

function told(isLost) {
  if (lost.hidden === isLost) lost.hidden = !isLost;
}

document.body.addEventListener("htmx:sendError", () => told(true));
document.body.addEventListener("htmx:timeout", () => told(true));
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.xhr?.status) told(event.detail.xhr.status >= 500);
});
