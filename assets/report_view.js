// The view of a report. gr.HTML calls this once per mount; props.value is JSON of fastinfer/ui/report.py.

const root = element.querySelector('.fi-report');
const find = (selector) => root.querySelector(selector);
let report = null, shown = '', file = null;

function fillTable(table) {
  const box = find('.fi-table');
  box.hidden = !table;
  if (!table) return;
  const head = make('thead'), body = make('tbody'), top = make('tr');
  top.append(...table.heads.map((text) => { const th = make('th', say(text)); th.scope = 'col'; return th; }));
  head.append(top);
  table.rows.forEach((cells, index) => {
    const row = make('tr', undefined, table.marked.includes(index) ? 'fi-marked' : '');
    row.append(...cells.map((text, i) => {
      const cell = make(i ? 'td' : 'th', table.words ? say(text) : text);
      if (!i) cell.scope = 'row';
      return cell;
    }));
    body.append(row);
  });
  const node = find('.fi-table table');
  node.className = table.words ? 'fi-words' : '';
  node.replaceChildren(head, body);
}

function fillCharts(charts) {
  const box = find('.fi-reports');
  const names = charts.map((chart) => chart.name).join();
  if (box.dataset.names !== names) { // others than before: else Plotly updates them in place
    box.querySelectorAll('[data-chart]').forEach((node) => window.Plotly && window.Plotly.purge(node));
    box.replaceChildren(...charts.map(figureBox));
    box.dataset.names = names;
    box.dataset.count = charts.length;
  }
  for (const chart of charts) {
    const node = box.querySelector(`[data-chart="${chart.name}"]`);
    node.closest('figure').querySelector('.fi-chart-note').textContent = say(chart.note);
    plotInto(node, chart, root);
  }
}

function fillNotes(box, list, notes) {
  box.hidden = !notes.length;
  list.replaceChildren(...notes.map((note) => make('li', say(note))));
}

function fillDownload(download) {
  const line = find('.fi-links'), link = line.querySelector('a');
  line.hidden = !download;
  if (file) URL.revokeObjectURL(file);
  file = null;
  if (!download) return;
  file = URL.createObjectURL(new Blob([download.text], { type: 'application/json' }));
  link.href = file;
  link.download = download.name;
  link.textContent = say('Save ' + download.name);
}

function paint() {
  if (report.state === 'running' && root.dataset.state !== 'running') bringIntoView(root);
  root.dataset.state = report.state;
  find('[data-part=title]').textContent = say(report.title);
  find('[data-part=detail]').textContent = say(report.detail);
  fillBar(find('.fi-bar'), report.progress, report.state === 'running');
  fillVerdict(find('.fi-verdict'), report.verdict);
  fillFigures(find('.fi-figures'), report.figures);
  fillCharts(report.charts);
  fillTable(report.table);
  fillNotes(find('[data-part=notes]'), find('[data-part=notes]'), report.notes);
  fillNotes(find('.fi-more'), find('.fi-more ul'), report.more);
  find('.fi-more summary').textContent = say(report.more_title);
  fillDownload(report.download);
  const over = report.state === 'done' || report.state === 'failed';
  find('.fi-summary').textContent = over ? [report.title, report.verdict && report.verdict.text].filter(Boolean).map(say).join(' ') : '';
}

sayAll(root);

function update() {
  if (typeof props.value !== 'string' || !props.value || props.value === shown) return;
  shown = props.value;
  report = JSON.parse(shown);
  paint();
}

onOver(root, update);

onTheme(() => report && report.charts.forEach((chart) => plotInto(root.querySelector(`[data-chart="${chart.name}"]`), chart, root)));
onSize(root);
watch('value', update);
update();
