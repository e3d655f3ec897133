// Figures, drawn by plotly in the colours of the theme.

// Figures refer to colours by name, because a page has a light and a dark theme.
const applyColors = (part, palette) => {
  if (Array.isArray(part)) return part.map((item) => applyColors(item, palette));
  if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, applyColors(value, palette)]));
  return typeof part === "string" && part in palette ? palette[part] : part;
};
const colors = () => data.themes[dark.matches ? "dark" : "light"];
const hover = (number) => data.trials[number]?.hover ?? "";

function draw(box) {
  const figure = data.figures[box.id];
  const shown = box.view ? curvesOf(figure, box.view) : hasBrush(box) ? brushedOf(figure) : figure;
  const { data: traces, layout } = applyColors(shown, colors());
  for (const trace of traces) {
    if (!trace.hovertemplate?.includes("%{text}") || trace.text) continue;
    trace.text = trace.customdata ? trace.customdata.map(hover) : hover(trace.meta);
  }
  if (touch) layout.dragmode = false; // because a finger scrolls the page
  if (layout.coloraxis && box.clientWidth < 480) layout.coloraxis.showscale = false; // because the page's key shows it
  const bar = { modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], displayModeBar: touch ? false : "hover" };
  const words = `${document.querySelector("h1").textContent}_${box.ariaLabel}`;
  const image = { format: "svg", filename: words.replace(/[^\p{L}\p{N}_.-]/gu, "_").toLowerCase() };
  const options = { displaylogo: false, showSendToCloud: false, responsive: true, toImageButtonOptions: image, ...bar };
  Plotly.newPlot(box, traces, layout, options);
  box.on("plotly_click", ({ points: [point] }) => {
    const number = point.customdata ?? point.data.meta;
    if (number in data.trials) show(number);
  });
  if (hasBrush(box)) listenToBrush(box);
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
    const indices = (trace.mode === "lines" ? [] : trace.customdata ?? []).flatMap((number, i) => (number === chosen ? [i] : []));
    if (!indices.length) continue;
    const isLine = indices.length > 1;
    const marker = { symbol: "circle-open", size: isLine ? 9 : 15, color, line: { width: 3, color } };
    const [x, y] = [trace.x, trace.y].map((values) => indices.map((i) => values[i]));
    marks.push({ ...style, mode: isLine ? "lines+markers" : "markers", x, y, marker });
  }
  if (marks.length) Plotly.addTraces(box, marks);
}
const boxes = () => [...document.querySelectorAll(".figure")];

const isCurves = (box) => Boolean(data.figures[box.id].layout.meta?.curves);

// The brush: ranges of positions on axes of the parallel coordinates, by the number of the axis.
let ranges = null;
const brush = () => (ranges ??= JSON.parse(remembered("brush") ?? "{}"));
const hasBrush = (box) => Boolean(data.figures[box.id].layout.meta?.brush);

// The numbers of the trials in all ranges; null without a range.
function brushedTrials() {
  if (!Object.keys(brush()).length) return null;
  const figure = Object.values(data.figures).find(({ layout }) => layout.meta?.brush);
  const outside = new Set(figure?.data.flatMap(({ x, y, customdata }) => customdata.filter((_, i) => {
    const [low, high] = brush()[x[i]] ?? [-Infinity, Infinity];
    return x[i] !== null && (y[i] === null || y[i] < low || y[i] > high);
  })));
  return new Set(figure?.data.flatMap(({ customdata }) => customdata).filter((number) => !outside.has(number)));
}

// The figure with the trials outside of the brush faint, below all others, and a rectangle for each range.
function brushedOf(figure) {
  const trials = brushedTrials();
  if (!trials) return { ...figure, layout: { ...figure.layout, dragmode: "select" } };
  const part = (trace, isInside) => {
    const some = (values) => (Array.isArray(values) ? values.filter((_, i) => trials.has(trace.customdata[i]) === isInside) : values);
    const [x, y, customdata] = [trace.x, trace.y, trace.customdata].map(some);
    const marker = trace.marker && { ...trace.marker, color: some(trace.marker.color) };
    return { ...trace, x, y, customdata, ...(marker && { marker }), ...(isInside ? {} : { opacity: 0.07, hoverinfo: "skip", hovertemplate: null }) };
  };
  const traces = [false, true].flatMap((isInside) => figure.data.map((trace) => part(trace, isInside)).filter(({ x }) => x.length));
  const rectangles = Object.entries(brush()).map(([axis, [y0, y1]]) => (
    { type: "rect", x0: axis - 0.04, x1: Number(axis) + 0.04, y0, y1, line: { width: 1, color: "--chosen" } }));
  return { data: traces, layout: { ...figure.layout, dragmode: "select", shapes: [...(figure.layout.shapes ?? []), ...rectangles] } };
}

function listenToBrush(box) {
  const use = (chosenRanges) => {
    ranges = chosenRanges;
    remember("brush", JSON.stringify(ranges));
    setTimeout(() => { boxes().filter((other) => other.drawn && hasBrush(other)).forEach(draw); dispatchEvent(new Event("brush")); });
  };
  box.on("plotly_selected", (event) => {
    if (!event?.range) return;
    const [left, right] = event.range.x;
    const axes = [...new Set(data.figures[box.id].data.flatMap(({ x }) => x))].filter((x) => x !== null && x >= left && x <= right);
    if (axes.length) use({ ...brush(), ...Object.fromEntries(axes.map((axis) => [axis, event.range.y])) });
  });
  box.on("plotly_deselect", () => use({}));
  box.on("plotly_doubleclick", () => use({}));
}

// The points of a metric over steps, or over another metric such as seconds.
function curveOf(number, metric, by) {
  const [steps, values] = data.trials[number]?.curves[metric] ?? [[], []];
  if (by === "step") return [steps, values];
  const [from, to] = by === "seconds" ? data.trials[number]?.seconds ?? [[], []] : data.trials[number]?.curves[by] ?? [[], []];
  return [steps.map((step) => interpolate(from, to, step)), values];
}

function interpolate(from, to, step) {
  const i = from.findIndex((at) => at >= step);
  if (i < 0 || from[i] === step) return i < 0 ? null : to[i];
  return i ? to[i - 1] + ((to[i] - to[i - 1]) * (step - from[i - 1])) / (from[i] - from[i - 1]) : null;
}

// The values of a curve on a scale of scales.py: zeros at the bottom, values that are far off at the edge.
const placed = ({ low, floor, edge }, values) => values.map((value) => (
  value === null ? null : floor !== null && value < low ? floor : Math.min(value, edge ?? Infinity)));

// The figure of learning curves with other metrics, the second one dotted, or over another axis.
function curvesOf(figure, { choice, by }) {
  const scale = data.scales[choice];
  const traces = scale.metrics.flatMap((metric, m) => figure.data.flatMap((trace) => {
    const points = (number) => { const [x, y] = curveOf(number, metric, by); return [x, placed(scale, y)]; };
    if (trace.mode === "lines") {
      const [x, y] = points(trace.meta);
      return [m ? { ...trace, x, y, line: { ...trace.line, dash: "dot" }, showlegend: false } : { ...trace, x, y }];
    }
    const ends = trace.customdata.map(points).map(([x, y]) => { // the last point with a value
      const last = y.findLastIndex((value) => value !== null);
      return [x[last] ?? null, y[last] ?? null];
    });
    return [{ ...trace, x: ends.map(([x]) => x), y: ends.map(([, y]) => y) }];
  }));
  const { gridcolor, linecolor, automargin } = figure.layout.yaxis;
  const style = { gridcolor, linecolor, automargin, zeroline: false };
  const layout = { ...figure.layout, xaxis: { ...style, title: { text: by } }, shapes: [], yaxis: { ...style, ...scale.axis, title: { text: choice } } };
  return { data: traces, layout };
}

// Add the choice of the metric and of the axis to a figure of learning curves.
function addChoices(box) {
  const names = Object.keys(data.scales);
  if (!names.length) return;
  const choice = (label, options, value) => {
    const select = element("select", options.map((name) => element("option", name)), { "aria-label": label });
    select.value = value;
    select.addEventListener("change", redraw);
    return select;
  };
  const below = box.parentElement.nextElementSibling ?? element("p", [], { class: "note" });
  const redraw = () => {
    box.view = { choice: metric.value, by: by.value };
    below.textContent = `${data.figures[box.id].layout.meta.curves.note} ${data.scales[metric.value].note}`;
    if (window.Plotly) draw(box);
  };
  const metric = choice("metrics of the curves", names, data.metric);
  const by = choice("axis of the curves", ["step", "seconds", ...names.filter((name) => name === "epoch")], "step");
  box.parentElement.before(element("div", [metric, " by ", by], { class: "tools" }));
  box.parentElement.after(below);
}
