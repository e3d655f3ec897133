// The page: its data, its reloads while the study runs, and the start of everything.

const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)").matches;

// A frame without an origin, as in MLflow, has no storage.
const remembered = (key) => { try { return sessionStorage.getItem(location.pathname + key); } catch { return null; } };
const remember = (key, value) => { try { sessionStorage.setItem(location.pathname + key, value); } catch { /* see above */ } };

const element = (tag, content, attributes = {}) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...[content].flat());
  return node;
};

// Reload the page while the study runs, unless the reader is using it.
function refresh() {
  const written = document.getElementById("written");
  if (location.protocol === "blob:") { // in MLflow, which gets a new page once a minute
    written.append("; reopen the page for a newer one");
    return;
  }
  const button = document.getElementById("pause");
  const lateMs = 1000 * Math.max(60, 5 * data.again_s);
  let paused = remembered("paused") === "1";
  let usedAt = 0;
  for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) addEventListener(kind, () => { usedAt = Date.now(); }, { passive: true });
  const label = () => { button.textContent = paused ? "resume" : "pause"; };
  button.hidden = false;
  button.addEventListener("click", () => { paused = !paused; remember("paused", Number(paused)); label(); });
  label();
  const loadedAt = Date.now();
  setInterval(() => {
    const ageMs = Date.now() - data.written;
    if (ageMs > lateMs) written.textContent = `not updated for ${Math.round(ageMs / 60000)} min: check whether the driver is running`;
    const due = Date.now() - loadedAt > 1000 * data.again_s && Date.now() - usedAt > 4000;
    if (due && !paused && !document.hidden && !String(getSelection())) location.reload();
  }, 1000);
}

const PRINTED_WIDTH = 640; // pixels, as in page.css

async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(element("script", await new Response(unpacked).text()));
}

function drawAll() {
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.drawn) { watch.unobserve(target); draw(target); }
  }, { rootMargin: "400px" });
  boxes().forEach((box) => watch.observe(box));
  boxes().filter(isCurves).forEach(addChoices);
  dark.addEventListener("change", () => boxes().filter((box) => box.drawn).forEach((box) => draw(box)));
  if (chosen !== null) show(chosen, false); // because its curve needs plotly
  addEventListener("beforeprint", () => boxes().forEach((box) => {
    if (!box.drawn) draw(box);
    Plotly.relayout(box, { width: PRINTED_WIDTH });
  }));
  addEventListener("afterprint", () => boxes().forEach((box) => Plotly.relayout(box, { width: null, autosize: true })));
}

function drawNothing(error) {
  document.querySelector("main").before(element("p", `Figures cannot be drawn: ${error}`, { class: "warning" }));
  boxes().forEach((box) => { box.style.height = "auto"; });
}

prepareTables();
if (data.again_s) refresh();
if (location.protocol === "blob:") document.querySelectorAll(".beside").forEach((link) => link.replaceWith(...link.childNodes)); // because MLflow shows the page alone
const showLinked = () => {
  const match = /^#trial-(\d+)$/.exec(location.hash);
  if (match && Number(match[1]) !== chosen) show(Number(match[1]), false);
};
addEventListener("hashchange", showLinked);
(boxes().length ? unpack().then(drawAll).catch(drawNothing) : Promise.resolve()).finally(showLinked);
