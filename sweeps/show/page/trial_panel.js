// The panel of a trial, or of several trials side by side.

const panel = document.getElementById("trial");
let chosen = null; // number of the trial in the panel
let opener = null; // element with the focus before

function list(pairs) {
  return element("dl", Object.entries(pairs).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

// The curves of trials, with the choice of a metric.
function curve(numbers) {
  const names = [...new Set(numbers.flatMap((number) => Object.keys(data.trials[number].curves)))];
  if (!names.length) return element("p", "No metrics reported.", { class: "note" });
  const choice = element("select", names.map((name) => element("option", name)), { "aria-label": "metric" });
  choice.value = names.includes(data.metric) ? data.metric : names[0];
  const box = element("div", [], { style: "height:210px" });
  const redraw = () => {
    if (!window.Plotly) return;
    const metric = choice.value;
    const palette = colors();
    const scale = data.scales[metric] ?? { floor: null }; // a system metric is linear
    const axis = { gridcolor: palette["--line"], zeroline: false, automargin: true };
    const layout = { height: 210, margin: { l: 44, r: 8, t: 8, b: 34 }, xaxis: { ...axis, title: { text: metric.startsWith("system/") ? "seconds" : "step" } }, yaxis: { ...axis, ...scale.axis }, showlegend: numbers.length > 1,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: palette["--ink"], size: 11 }, dragmode: touch ? false : "zoom" };
    const lines = numbers.map((number, i) => {
      const [x, y] = curveOf(number, metric, "step");
      const color = palette[numbers.length > 1 ? `--series-${i}` : "--chosen"];
      return { x, y: placed(scale, y), name: `trial ${number}`, mode: x.length > 40 ? "lines" : "lines+markers", line: { color, width: 2 }, marker: { size: 5 } };
    });
    Plotly.newPlot(box, lines, layout, { displayModeBar: false, responsive: true });
  };
  choice.addEventListener("change", redraw);
  setTimeout(redraw); // because the box must be on the page first
  return [choice, box];
}

// Open the panel with a title and columns.
function open(title, columns, focus) {
  if (panel.hidden) opener = document.activeElement;
  const close = element("button", "close (Esc)", { type: "button" });
  close.addEventListener("click", hide);
  panel.replaceChildren(element("div", [element("h2", title, { tabindex: -1 }), close], { class: "head" }), element("div", columns.map((column) => element("div", column))));
  panel.hidden = false;
  panel.classList.remove("several-trials");
  panel.scrollTop = 0;
  document.body.classList.add("open");
  if (focus) panel.querySelector("h2").focus({ preventScroll: true });
}

function show(number, focus = true) {
  const trial = data.trials[number];
  if (!trial) return;
  const config = trial.config.map((i) => data.lines[i]).join("\n");
  const facts = [trial.error ? element("pre", trial.error, { class: "error" }) : [], element("h3", "Parameters"), list(trial.params)].flat();
  if (Object.keys(trial.metrics).length) facts.push(element("h3", trial.state === "completed" ? "Metrics" : "Latest metrics"), list(trial.metrics));
  facts.push(element("h3", "Details"), list(trial.facts));
  const log = trial.log ? element("pre", trial.log, { class: "log", tabindex: 0 }) : element("p", "The log is empty.", { class: "note" });
  const last = [element("h3", "End of the log"), log];
  if (config) last.push(element("details", [element("summary", "full configuration"), element("pre", config, { class: "config" })]));
  open(`trial ${number}: ${trial.state}`, [facts, [element("h3", "Curve"), curve([number])].flat(), last], focus);
  chosen = number;
  log.scrollTop = log.scrollHeight;
  settle(`#trial-${number}`);
}

// Show trials side by side: a column for each, and their curves.
function compare(numbers) {
  const trials = numbers.map((number) => data.trials[number]);
  const rows = [];
  for (const group of ["params", "metrics", "facts"]) {
    for (const name of new Set(trials.flatMap((trial) => Object.keys(trial[group])))) {
      const values = trials.map((trial) => trial[group][name] ?? "");
      const differs = new Set(values).size > 1;
      if (differs || group !== "facts") rows.push(element("tr", [name, ...values].map((value) => element("td", value)), differs ? { class: "differs" } : {}));
    }
  }
  const head = element("tr", ["", ...numbers.map((number, i) => `trial ${number}: ${trials[i].state}`)].map((title) => element("th", title)));
  const table = element("div", element("table", [element("thead", head), element("tbody", rows)]), { class: "table" });
  open(`${numbers.length} trials side by side`, [[table], [element("h3", "Curves"), curve(numbers)].flat()], true);
  panel.classList.add("several-trials");
  chosen = null;
  settle(" ");
}

function hide() {
  if (panel.hidden) return;
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
  const row = event.target.matches("input") ? null : event.target.closest("tr[data-trial]");
  const number = link ? link.hash.slice(7) : row?.dataset.trial;
  if (number === undefined || (!link && String(getSelection()))) return; // because the reader is selecting text
  event.preventDefault();
  show(Number(number), Boolean(link));
});
