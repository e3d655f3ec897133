// Tables: sort by a column, filter rows, choose columns and trials.

// Sort a table by a column: numbers numerically, empty cells last.
function sort(table, column, down) {
  const body = table.tBodies[0];
  const value = (row) => row.cells[column]?.textContent.trim() ?? "";
  const rows = [...body.rows].sort((left, right) => {
    const [a, b] = [value(left), value(right)];
    if (!a || !b) return Boolean(b) - Boolean(a);
    const [x, y] = [Number(a.split(" ")[0]), Number(b.split(" ")[0])];
    const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
    return down ? -order : order;
  });
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
}

const OPERATORS = { "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, ">": (a, b) => a > b, "=": (a, b) => a === b };

// Whether a row has each word of a filter; `lr<=0.01` and `state=failed` compare the cell of a column.
function matches(row, names, words) {
  return words.every((word) => {
    const [, name, operator, wanted] = /^(.+?)(<=|>=|!=|<|>|=)(.*)$/.exec(word) ?? [];
    const column = names.indexOf(name);
    if (column < 0) return row.textContent.toLowerCase().includes(word.toLowerCase());
    const cell = row.cells[column].textContent.trim();
    const isNumber = cell !== "" && wanted !== "" && !Number.isNaN(Number(cell)) && !Number.isNaN(Number(wanted));
    if (!isNumber && !operator.endsWith("=")) return false;
    const [a, b] = isNumber ? [Number(cell), Number(wanted)] : [cell.replace(/^\S (?=\w)/, ""), wanted];
    return OPERATORS[operator](a, b);
  });
}

function addTools(table) {
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map((head) => head.textContent.trim());
  const rows = [...table.tBodies[0].rows];
  const filter = element("input", [], { type: "search", placeholder: "filter: adam lr<0.01 state=failed", "aria-label": "filter of trials", size: 34 });
  const count = element("span", "", { class: "note", role: "status" });
  const apply = () => {
    const words = filter.value.split(" ").filter(Boolean);
    const trials = brushedTrials();
    const isBrushed = (row) => !trials || trials.has(Number(row.dataset.trial));
    for (const row of rows) row.hidden = !(isBrushed(row) && matches(row, names, words));
    count.textContent = words.length || trials ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    remember("filter", filter.value);
  };
  filter.value = remembered("filter") ?? "";
  filter.addEventListener("input", apply);
  addEventListener("brush", apply);
  apply();

  const hidden = new Set((remembered("columns") ?? "").split("\n").filter(Boolean));
  const showColumns = () => {
    names.forEach((name, i) => [heads[i], ...rows.map((row) => row.cells[i])].forEach((cell) => { if (cell) cell.hidden = hidden.has(name); }));
    remember("columns", [...hidden].join("\n"));
  };
  const boxes = names.map((name) => {
    const box = element("input", [], { type: "checkbox" });
    box.checked = !hidden.has(name);
    box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](name); showColumns(); });
    return element("label", [box, name]);
  });
  showColumns();

  const most = 5;
  const beside = element("button", "side by side", { type: "button", disabled: "" });
  const selected = () => [...table.querySelectorAll("td input:checked")].map((box) => Number(box.closest("tr").dataset.trial));
  beside.addEventListener("click", () => compare(selected()));
  for (const row of rows.filter(({ dataset }) => dataset.trial in data.trials)) {
    row.cells[0].prepend(element("input", [], { type: "checkbox", "aria-label": `select trial ${row.dataset.trial}` }));
  }
  table.addEventListener("change", () => {
    const size = selected().length;
    beside.disabled = size < 2;
    beside.textContent = size ? `${size} side by side` : "side by side";
    for (const box of table.querySelectorAll("td input:not(:checked)")) box.disabled = size >= most;
  });
  const columns = element("details", [element("summary", "columns"), element("div", boxes)], { class: "columns" });
  table.parentElement.before(element("div", [filter, count, beside, columns], { class: "tools" }));
}

function prepareTables() {
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
  document.querySelectorAll("table:has(tr[data-trial])").forEach(addTools);
}
