// The stream view's charts, and what its other parts share. Charts are extended, never rebuilt, and each
// at most every CHART_MS.

const CHART_MS = 300;
const root = element.querySelector('.fi-view');
const part = (name) => root.querySelector('.fi-' + name);
sayAll(root);

let head = ''; // the first line of the value, which names the run
let length = 0; // tokens at most: the common x axis

const charts = new Map();
let pending = new Map(), timer = null, drawn = 0;

function draw(name) { // the whole chart: at a new run and at a change of theme
  const { node, spec, data } = charts.get(name);
  const layout = resolved(spec.layout, root);
  layout.uirevision = head; // a zoom lasts as long as the run
  layout.xaxis.range = [0, length || 100];
  // Plotly gets copies: it extends the arrays that it was given.
  const copy = (series) => Object.fromEntries(Object.entries(series).map(([key, list]) => [key, [...list]]));
  const traces = resolved(spec.traces, root).map((trace, i) => ({ ...trace, ...copy(data[i]) }));
  react(node, traces, layout);
}

function clearChart(name) {
  const chart = charts.get(name);
  chart.data = chart.spec.traces.map((trace) => ({ x: [], y: [], ...('text' in trace ? { text: [] } : {}) }));
  draw(name);
}

function clearCharts() {
  clearTimeout(timer);
  timer = null;
  pending = new Map();
  schedule();
  for (const name of charts.keys()) clearChart(name);
}

function extend(name, points) {
  const chart = charts.get(name);
  const traces = [...new Set(points.map((p) => p[0]))];
  const update = { x: [], y: [] };
  if ('text' in chart.data[0]) update.text = [];
  for (const trace of traces) {
    const own = points.filter((p) => p[0] === trace);
    update.x.push(own.map((p) => p[1]));
    update.y.push(own.map((p) => p[2]));
    if (update.text) update.text.push(own.map((p) => p[3] || ''));
  }
  // Ours are extended beside Plotly's, for the next change of theme.
  traces.forEach((trace, i) => Object.keys(update).forEach((key) => chart.data[trace][key].push(...update[key][i])));
  if (window.Plotly) window.Plotly.extendTraces(chart.node, update, traces);
}

function extendNext() { // one chart, the one that has waited longest: all in one go would hold up the page
  timer = null;
  const [name, points] = pending.entries().next().value;
  pending.delete(name);
  extend(name, points);
  drawn = performance.now();
  schedule();
}

function schedule() {
  root.dataset.drawing = pending.size ? 'on' : '';
  if (pending.size && !timer) timer = setTimeout(extendNext, Math.max(0, CHART_MS / charts.size - (performance.now() - drawn)));
}

function addPoints(points) {
  for (const [name, list] of Object.entries(points)) {
    if (!charts.has(name)) continue;
    if (!pending.has(name)) pending.set(name, []);
    pending.get(name).push(...list);
  }
  schedule();
}

function setBars(bars) { // [share accepted, tokens tested] at each position of the block
  for (const [role, heights] of Object.entries(bars)) {
    const row = root.querySelector(`[data-bars="${role}"]`);
    while (row.childElementCount > heights.length) row.lastChild.remove();
    while (row.childElementCount < heights.length) row.append(document.createElement('i'));
    const told = heights.map(([share, tested], i) => `${i + 1}: ${Math.round(100 * share)} % of ${tested}`);
    heights.forEach(([share], i) => {
      row.children[i].style.setProperty('--fi-share', share);
      row.children[i].dataset.share = Math.round(100 * share);
      row.children[i].title = 'position ' + told[i];
    });
    row.setAttribute('aria-label', `${role}, share accepted at each position: ${told.join(', ') || 'nothing tested yet'}`);
  }
}

function watchCharts() {
  onTheme(() => { for (const name of charts.keys()) draw(name); });
  onSize(root);
}
