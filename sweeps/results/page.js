"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const panel = document.getElementById("trial");
  let chosen = null; // number of the trial in the panel
  let opener = null; // element with the focus before

  // A frame without an origin, as in MLflow, has no storage.
  const remembered = (key) => { try { return sessionStorage.getItem(location.pathname + key); } catch { return null; } };
  const remember = (key, value) => { try { sessionStorage.setItem(location.pathname + key, value); } catch { /* see above */ } };

  const element = (tag, content, attributes = {}) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...[content].flat());
    return node;
  };

  // Figures refer to colours by name, because a page has a light and a dark theme.
  const applyColors = (part, palette) => {
    if (Array.isArray(part)) return part.map((item) => applyColors(item, palette));
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, applyColors(value, palette)]));
    return typeof part === "string" && part in palette ? palette[part] : part;
  };
  const colors = () => data.themes[dark.matches ? "dark" : "light"];
  const hover = (number) => data.trials[number]?.hover ?? "";

  function draw(box, figure = data.figures[box.id]) {
    const { data: traces, layout } = applyColors(figure, colors());
    for (const trace of traces) {
      if (!trace.hovertemplate?.includes("%{text}") || trace.text) continue;
      trace.text = trace.customdata ? trace.customdata.map(hover) : hover(trace.meta);
    }
    if (touch) layout.dragmode = false; // because a finger scrolls the page
    if (layout.coloraxis && box.clientWidth < 480) layout.coloraxis.showscale = false; // because the page's key shows it
    const bar = { modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], displayModeBar: touch ? false : "hover" };
    Plotly.newPlot(box, traces, layout, { displaylogo: false, showSendToCloud: false, responsive: true, ...bar });
    box.on("plotly_click", ({ points: [point] }) => {
      const number = point.customdata ?? point.data.meta;
      if (number in data.trials) show(number);
    });
    box.drawn = traces.length;
    mark(box);
  }

  // Draw the chosen trial's points again, over all others.
  function mark(box) {
    if (!box.drawn) return;
    const old = box.data.length - box.drawn;
    if (old) Plotly.deleteTraces(box, [...Array(old).keys()].map((i) => box.drawn + i));
    if (chosen === null) return;
    const color = colors()["--chosen"];
    const marks = [];
    for (const trace of box.data) {
      if (trace.type !== "scatter") continue;
      const { xaxis, yaxis } = trace;
      const style = { type: "scatter", xaxis, yaxis, hoverinfo: "skip", showlegend: false, line: { color, width: 3 } };
      if (trace.meta === chosen) marks.push({ ...style, mode: "lines", x: trace.x, y: trace.y });
      const indices = (trace.customdata ?? []).flatMap((number, i) => (number === chosen ? [i] : []));
      if (!indices.length) continue;
      const isLine = indices.length > 1;
      const marker = { symbol: "circle-open", size: isLine ? 9 : 15, color, line: { width: 3, color } };
      const [x, y] = [trace.x, trace.y].map((values) => indices.map((i) => values[i]));
      marks.push({ ...style, mode: isLine ? "lines+markers" : "markers", x, y, marker });
    }
    if (marks.length) Plotly.addTraces(box, marks);
  }
  const boxes = () => [...document.querySelectorAll(".figure")];

  function list(pairs) {
    return element("dl", Object.entries(pairs).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  }

  function curve(trial) {
    const names = Object.keys(trial.curves);
    if (!names.length) return element("p", "No metrics reported.", { class: "note" });
    const choice = element("select", names.map((name) => element("option", name)), { "aria-label": "metric" });
    choice.value = names.includes(data.metric) ? data.metric : names[0];
    const box = element("div", [], { style: "height:210px" });
    const redraw = () => {
      if (!window.Plotly) return;
      const [x, y] = trial.curves[choice.value];
      const palette = colors();
      const axis = { gridcolor: palette["--line"], zeroline: false, automargin: true };
      const layout = { height: 210, margin: { l: 44, r: 8, t: 8, b: 34 }, xaxis: { ...axis, title: { text: "step" } }, yaxis: axis,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: palette["--ink"], size: 11 }, dragmode: touch ? false : "zoom" };
      const line = { x, y, mode: x.length > 40 ? "lines" : "lines+markers", line: { color: palette["--chosen"], width: 2 }, marker: { size: 5 } };
      Plotly.newPlot(box, [line], layout, { displayModeBar: false, responsive: true });
    };
    choice.addEventListener("change", redraw);
    setTimeout(redraw); // because the box must be on the page first
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
    if (Object.keys(trial.metrics).length) facts.push(element("h3", "Latest metrics"), list(trial.metrics));
    facts.push(element("h3", "Details"), list(trial.facts));
    const log = trial.log ? element("pre", trial.log, { class: "log", tabindex: 0 }) : element("p", "The log is empty.", { class: "note" });
    const last = [element("h3", "End of the log"), log];
    if (config) last.push(element("details", [element("summary", "full configuration"), element("pre", config, { class: "config" })]));
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
    if (number === undefined || (!link && String(getSelection()))) return; // because the reader is selecting text
    event.preventDefault();
    show(Number(number), Boolean(link));
  });

  // Sort a table by a column: numbers numerically, empty cells last.
  function sort(table, column, down) {
    const body = table.tBodies[0];
    const value = (row) => row.cells[column]?.textContent.trim() ?? "";
    const rows = [...body.rows].sort((left, right) => {
      const [a, b] = [value(left), value(right)];
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
    dark.addEventListener("change", () => boxes().filter((box) => box.drawn).forEach((box) => draw(box)));
    if (chosen !== null) show(chosen, false); // because its curve needs plotly
    addEventListener("beforeprint", () => boxes().filter((box) => !box.drawn).forEach((box) => draw(box)));
  }

  function drawNothing(error) {
    document.querySelector("main").before(element("p", `Figures cannot be drawn: ${error}`, { class: "warning" }));
    boxes().forEach((box) => { box.style.height = "auto"; });
  }

  if (data.again_s) refresh();
  const showLinked = () => {
    const match = /^#trial-(\d+)$/.exec(location.hash);
    if (match && Number(match[1]) !== chosen) show(Number(match[1]), false);
  };
  addEventListener("hashchange", showLinked);
  (boxes().length ? unpack().then(drawAll).catch(drawNothing) : Promise.resolve()).finally(showLinked);
})();
