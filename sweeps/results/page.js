"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const panel = document.getElementById("trial");
  let chosen = null; // the number of the trial whose details are shown
  let opener = null; // what had the focus before

  // A frame without an origin of its own, as in MLflow, has no storage.
  const remembered = (key) => { try { return sessionStorage.getItem(location.pathname + key); } catch { return null; } };
  const remember = (key, value) => { try { sessionStorage.setItem(location.pathname + key, value); } catch { /* not kept */ } };

  const element = (tag, content, attributes = {}) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...[content].flat());
    return made;
  };

  // Colours stand in figures by their names.
  const painted = (part, names) => {
    if (Array.isArray(part)) return part.map((one) => painted(one, names));
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([key, one]) => [key, painted(one, names)]));
    return typeof part === "string" && part in names ? names[part] : part;
  };
  const colors = () => data.themes[dark.matches ? "dark" : "light"];
  const hover = (number) => data.trials[number]?.hover ?? "";

  function draw(box, figure = data.figures[box.id]) {
    const { data: traces, layout } = painted(figure, colors());
    for (const trace of traces) {
      if (!trace.hovertemplate?.includes("%{text}") || trace.text) continue;
      trace.text = trace.customdata ? trace.customdata.map(hover) : hover(trace.meta);
    }
    if (touch) layout.dragmode = false; // a finger moves the page
    if (layout.coloraxis && box.clientWidth < 480) layout.coloraxis.showscale = false; // the page's key tells
    const bar = { modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], displayModeBar: touch ? false : "hover" };
    Plotly.newPlot(box, traces, layout, { displaylogo: false, showSendToCloud: false, responsive: true, ...bar });
    box.on("plotly_click", ({ points: [point] }) => {
      const number = point.customdata ?? point.data.meta;
      if (number in data.trials) show(number);
    });
    box.drawn = traces.length;
    mark(box);
  }

  // The chosen trial's points once more over all others.
  function mark(box) {
    if (!box.drawn) return;
    const old = box.data.length - box.drawn;
    if (old) Plotly.deleteTraces(box, [...Array(old).keys()].map((i) => box.drawn + i));
    if (chosen === null) return;
    const color = colors()["--chosen"];
    const own = [];
    for (const trace of box.data) {
      if (trace.type !== "scatter") continue;
      const { xaxis, yaxis } = trace;
      const same = { type: "scatter", xaxis, yaxis, hoverinfo: "skip", showlegend: false, line: { color, width: 3 } };
      if (trace.meta === chosen) own.push({ ...same, mode: "lines", x: trace.x, y: trace.y });
      const places = (trace.customdata ?? []).flatMap((number, i) => (number === chosen ? [i] : []));
      if (!places.length) continue;
      const marker = { symbol: "circle-open", size: 15, color, line: { width: 3, color } };
      const [x, y] = [trace.x, trace.y].map((values) => places.map((i) => values[i]));
      own.push({ ...same, mode: places.length > 1 ? "lines+markers" : "markers", x, y, marker: { ...marker, size: places.length > 1 ? 9 : 15 } });
    }
    if (own.length) Plotly.addTraces(box, own);
  }
  const boxes = () => [...document.querySelectorAll(".figure")];

  function list(pairs) {
    return element("dl", Object.entries(pairs).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  }

  function curve(trial) {
    const names = Object.keys(trial.curves);
    if (!names.length) return element("p", "It reported nothing.", { class: "note" });
    const choice = element("select", names.map((name) => element("option", name)), { "aria-label": "metric" });
    choice.value = names.includes(data.metric) ? data.metric : names[0];
    const box = element("div", [], { style: "height:210px" });
    const redraw = () => {
      if (!window.Plotly) return;
      const [x, y] = trial.curves[choice.value];
      const names = colors();
      const axis = { gridcolor: names["--line"], zeroline: false, automargin: true };
      const layout = { height: 210, margin: { l: 44, r: 8, t: 8, b: 34 }, xaxis: { ...axis, title: { text: "step" } }, yaxis: axis,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: names["--ink"], size: 11 }, dragmode: touch ? false : "zoom" };
      const line = { x, y, mode: x.length > 40 ? "lines" : "lines+markers", line: { color: names["--chosen"], width: 2 }, marker: { size: 5 } };
      Plotly.newPlot(box, [line], layout, { displayModeBar: false, responsive: true });
    };
    choice.addEventListener("change", redraw);
    setTimeout(redraw); // once it has its place on the page
    return [choice, box];
  }

  function show(number, focus = true) {
    const trial = data.trials[number];
    if (!trial) return;
    if (chosen === null) opener = document.activeElement;
    chosen = number;
    const close = element("button", "close (Esc)", { type: "button" });
    close.addEventListener("click", hide);
    const config = trial.config.map((i) => data.lines[i]).join("\n");
    const facts = [trial.error ? element("pre", trial.error, { class: "error" }) : [], element("h3", "Parameters"), list(trial.params)].flat();
    if (Object.keys(trial.metrics).length) facts.push(element("h3", "Reported last, or returned"), list(trial.metrics));
    facts.push(element("h3", "How it went"), list(trial.facts));
    const log = trial.log ? element("pre", trial.log, { class: "log", tabindex: 0 }) : element("p", "Its log is empty.", { class: "note" });
    const last = [element("h3", "The end of its log"), log];
    if (config) last.push(element("details", [element("summary", "its whole configuration"), element("pre", config, { class: "config" })]));
    panel.replaceChildren(
      element("div", [element("h2", `trial ${number}: ${trial.state}`, { tabindex: -1 }), close], { class: "head" }),
      element("div", [element("div", facts), element("div", [element("h3", "Curve"), curve(trial)].flat()), element("div", last)]),
    );
    panel.hidden = false;
    panel.scrollTop = 0;
    log.scrollTop = log.scrollHeight;
    document.body.classList.add("open");
    if (focus) panel.querySelector("h2").focus({ preventScroll: true });
    settle(`#trial-${number}`);
  }

  function hide() {
    if (chosen === null) return;
    chosen = null;
    panel.hidden = true;
    document.body.classList.remove("open");
    opener?.focus?.({ preventScroll: true });
    settle(" ");
  }

  function settle(hash) {
    for (const row of document.querySelectorAll("tr[data-trial]")) row.classList.toggle("chosen", Number(row.dataset.trial) === chosen);
    if (window.Plotly) boxes().forEach(mark);
    try { history.replaceState(null, "", hash === " " ? location.pathname + location.search : hash); } catch { /* in a frame */ }
  }

  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#trial-']");
    const row = event.target.closest("tr[data-trial]");
    const number = link ? link.hash.slice(7) : row?.dataset.trial;
    if (number === undefined || (!link && String(getSelection()))) return; // a text in the row is being selected
    event.preventDefault();
    show(Number(number), Boolean(link));
  });

  // Tables are sorted by a click on a column's name: numbers as numbers, what is empty last.
  function sort(table, column, down) {
    const body = table.tBodies[0];
    const value = (row) => row.cells[column]?.textContent.trim() ?? "";
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (!a || !b) return Boolean(b) - Boolean(a);
      const [x, y] = [Number(a.split(" ")[0]), Number(b.split(" ")[0])];
      const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
    [...table.tHead.rows[0].cells].forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
  }
  document.querySelectorAll("table").forEach((table, t) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent) return;
      const button = element("button", [...head.childNodes], { type: "button" });
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        sort(table, column, down);
        remember(`sort${t}`, `${column} ${Number(down)}`);
      });
      head.append(button);
    });
    const [column, down] = (remembered(`sort${t}`) ?? "").split(" ");
    if (column && Number(column) < table.tHead.rows[0].cells.length) sort(table, Number(column), down === "1");
  });

  // While the study runs the page looks for itself anew, unless somebody is just using it.
  function refresh() {
    const said = document.getElementById("written");
    if (location.protocol === "blob:") { // inside MLflow, which gets a new one once a minute
      said.append("; open it again for a newer one");
      return;
    }
    const button = document.getElementById("pause");
    const late_ms = 1000 * Math.max(60, 5 * data.again_s);
    let paused = remembered("paused") === "1";
    let used = 0;
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) addEventListener(kind, () => { used = Date.now(); }, { passive: true });
    const tell = () => { button.textContent = paused ? "refresh again" : "pause"; };
    button.hidden = false;
    button.addEventListener("click", () => { paused = !paused; remember("paused", Number(paused)); tell(); });
    tell();
    const loaded = Date.now();
    setInterval(() => {
      const age_ms = Date.now() - data.written;
      if (age_ms > late_ms) said.textContent = `not written for ${Math.round(age_ms / 60000)} min: is its driver gone?`;
      const due = Date.now() - loaded > 1000 * data.again_s && Date.now() - used > 4000;
      if (due && !paused && !document.hidden && !String(getSelection())) location.reload();
    }, 1000);
  }

  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(element("script", await new Response(unpacked).text()));
  }

  function drawAll() {
    const watch = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) if (isIntersecting && !target.drawn) { watch.unobserve(target); draw(target); }
    }, { rootMargin: "400px" });
    boxes().forEach((box) => watch.observe(box));
    dark.addEventListener("change", () => boxes().filter((box) => box.drawn).forEach((box) => draw(box)));
    if (chosen !== null) show(chosen, false); // its curve
    addEventListener("beforeprint", () => boxes().filter((box) => !box.drawn).forEach((box) => draw(box)));
  }

  function drawNothing(error) {
    document.querySelector("main").before(element("p", `Figures cannot be drawn: ${error}`, { class: "warning" }));
    boxes().forEach((box) => { box.style.height = "auto"; });
  }

  if (data.again_s) refresh();
  const asked = () => {
    const found = /^#trial-(\d+)$/.exec(location.hash);
    if (found && Number(found[1]) !== chosen) show(Number(found[1]), false);
  };
  addEventListener("hashchange", asked);
  (boxes().length ? unpack().then(drawAll).catch(drawNothing) : Promise.resolve()).finally(asked);
})();
