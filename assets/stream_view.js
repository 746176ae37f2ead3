// The live view of one run. gr.HTML calls this once per mount with `element`, `props` and `watch`.
//
// props.value is one string that only grows, a line of JSON a record (fastinfer/ui/records.py); this script
// reads the new suffix and paints it. Text enters the page by textContent alone and is never parsed. Charts
// are extended, never rebuilt, and at most every CHART_MS.

const CHART_MS = 300;
const NEAR_BOTTOM_PX = 32;
const root = element.querySelector('.fi-view');
const part = (name) => root.querySelector('.fi-' + name);
const places = new Map([...root.querySelectorAll('[data-text]')].map((node) => [node.dataset.text, node]));
const blanks = new Map([...places].map(([name, node]) => [name, node.textContent]));
const box = part('tokens'), promptSpan = part('prompt'), output = part('output'), tip = part('tip');

let read = 0; // characters of the value that were painted
let head = ''; // the first line, which names the run
let length = 0; // tokens at most: the common x axis
let spans = []; // what the tooltip says about each token
let silent = 0; // tokens before this one that made no whole character yet

// --- Charts -------------------------------------------------------------------------------------------

const charts = new Map();
let pending = new Map(), timer = null, drawn = 0;

function resolved(spec) { // every "var(--x)" as the theme has it now
  const style = getComputedStyle(root);
  const walk = (v) => typeof v === 'string' ? v.replace(/^var\((--[\w-]+)\)$/, (_, name) => style.getPropertyValue(name).trim())
    : Array.isArray(v) ? v.map(walk)
    : v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x)]))
    : v;
  return walk(spec);
}

function draw(name) { // the whole chart: at a new run and at a change of theme
  const { node, spec, data } = charts.get(name);
  if (!window.Plotly) { node.textContent = 'The chart library did not load.'; return; }
  const layout = resolved(spec.layout);
  layout.uirevision = head; // a zoom lasts as long as the run
  layout.xaxis.range = [0, length || 100];
  // Plotly gets copies: it extends the arrays that it was given.
  const copy = (series) => Object.fromEntries(Object.entries(series).map(([key, list]) => [key, [...list]]));
  const traces = resolved(spec.traces).map((trace, i) => ({ ...trace, ...copy(data[i]) }));
  window.Plotly.react(node, traces, layout, { displayModeBar: false, responsive: false });
}

function clearChart(name) {
  const chart = charts.get(name);
  chart.data = chart.spec.traces.map((trace) => ({ x: [], y: [], ...('text' in trace ? { text: [] } : {}) }));
  draw(name);
}

function extend() {
  timer = null;
  drawn = performance.now();
  const todo = pending;
  pending = new Map();
  for (const [name, points] of todo) {
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
}

function addPoints(points) {
  for (const [name, list] of Object.entries(points)) {
    if (!charts.has(name)) continue;
    if (!pending.has(name)) pending.set(name, []);
    pending.get(name).push(...list);
  }
  if (!timer) timer = setTimeout(extend, Math.max(0, CHART_MS - (performance.now() - drawn)));
}

// --- Text ---------------------------------------------------------------------------------------------

function addTokens(record) {
  const stuck = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_BOTTOM_PX;
  const fresh = document.createDocumentFragment();
  record.tokens.forEach((token, index) => {
    const span = document.createElement('span');
    span.className = 'fi-token fi-' + token.o;
    if (/^\s*\n\s*$/.test(token.s)) span.classList.add('fi-newline'); // else a bare line break has no colour
    span.dataset.origin = token.o;
    span.dataset.index = spans.length;
    span.textContent = token.s;
    const last = index === record.tokens.length - 1;
    spans.push({ ...token, round: record.round, silent: token.s ? silent : 0, refused: last ? record.refused : [] });
    silent = token.s ? 0 : silent + 1;
    fresh.append(span);
  });
  output.append(fresh);
  if (stuck) box.scrollTop = box.scrollHeight;
}

function setTexts(texts) {
  for (const [name, text] of Object.entries(texts)) if (places.has(name)) places.get(name).textContent = text;
}

function setState(state, summary) {
  root.dataset.state = state;
  part('summary').textContent = summary; // the one polite announcement, at the end
}

function reset(run) {
  spans = [];
  silent = 0;
  length = run.length;
  setTexts(Object.fromEntries(blanks));
  promptSpan.textContent = run.prompt;
  output.textContent = '';
  tip.hidden = true;
  box.scrollTop = box.scrollHeight;
  if (root.getBoundingClientRect().top > 0.7 * innerHeight) root.scrollIntoView(); // a phone: form above, view below
  clearTimeout(timer);
  timer = null;
  pending = new Map();
  for (const name of charts.keys()) clearChart(name);
}

function paint(record) {
  if (record.open) reset(record.open);
  else if (record.text) setTexts(record.text);
  else if (record.tokens) addTokens(record);
  else if (record.points) addPoints(record.points);
  else if (record.state) setState(record.state, record.summary);
}

function update() {
  const value = typeof props.value === 'string' ? props.value : '';
  if (!value) return; // nothing has run yet
  const first = value.slice(0, value.indexOf('\n') + 1);
  if (first !== head || value.length < read) { head = first; read = 0; }
  const end = value.lastIndexOf('\n') + 1;
  const fresh = value.slice(read, end);
  read = end;
  for (const line of fresh.split('\n')) if (line) paint(JSON.parse(line));
}

// --- Tooltip and legend -------------------------------------------------------------------------------

const visible = (text) => text.replace(/ /g, '·').replace(/\t/g, '→').replace(/\n/g, '↵') || '(part of a character)';
const percent = (p) => (100 * p).toFixed(2) + ' %';

function tipLines(token) {
  const lines = [visible(token.s), `${token.o} · position ${token.i} · round ${token.round}`];
  const shares = [`target ${percent(token.p)}`];
  if (token.q !== undefined) shares.push(`draft ${percent(token.q)}`);
  if (token.a !== undefined) shares.push(`accepted with ${percent(token.a)}`);
  lines.push(shares.join(' · '));
  if (token.refused.length) lines.push('refused: ' + token.refused.map(visible).join(' '));
  if (token.silent) lines.push(`completes a character begun ${token.silent} token${token.silent > 1 ? 's' : ''} before`);
  return lines;
}

function showTip(span) {
  tip.textContent = '';
  tipLines(spans[span.dataset.index]).forEach((line) => {
    const row = document.createElement('div');
    row.textContent = line;
    tip.append(row);
  });
  tip.hidden = false;
  const frame = root.getBoundingClientRect(), at = span.getClientRects()[0] || span.getBoundingClientRect();
  const left = Math.min(at.left - frame.left, frame.width - tip.offsetWidth - 4);
  const above = at.top - frame.top - tip.offsetHeight - 6;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = (at.top - tip.offsetHeight - 6 < 0 ? at.bottom - frame.top + 6 : above) + 'px';
}

function hover(event) {
  const span = event.target.closest('.fi-token');
  if (span) showTip(span); else tip.hidden = true;
}

box.addEventListener('pointerover', hover);
box.addEventListener('click', hover); // touch
box.addEventListener('pointerleave', () => { tip.hidden = true; });
box.addEventListener('scroll', () => { tip.hidden = true; });
root.addEventListener('keydown', (event) => { if (event.key === 'Escape') tip.hidden = true; });

root.querySelectorAll('.fi-key').forEach((key) => key.addEventListener('click', () => {
  const only = root.dataset.only === key.dataset.origin ? '' : key.dataset.origin;
  root.dataset.only = only;
  root.querySelectorAll('.fi-key').forEach((k) => k.setAttribute('aria-pressed', String(k.dataset.origin === only)));
}));

// --- Life ---------------------------------------------------------------------------------------------

// The page says that its run is over. If no record said so before, it was stopped.
// The last records may come a moment later than that news.
root.addEventListener('fi-over', () => {
  const run = head;
  setTimeout(() => {
    update();
    if (root.dataset.state !== 'running' || head !== run) return; // ended in words, or another has begun
    const words = `Stopped after ${spans.length} token${spans.length === 1 ? '' : 's'}.`;
    setTexts({ phase: words });
    setState('stopped', words);
  }, CHART_MS);
});

for (const spec of props.charts) {
  charts.set(spec.name, { spec, node: root.querySelector(`[data-chart="${spec.name}"]`), data: [] });
  clearChart(spec.name);
}

let dark = document.body.classList.contains('dark');
const themes = new MutationObserver(() => {
  const now = document.body.classList.contains('dark');
  if (now === dark) return;
  dark = now;
  for (const name of charts.keys()) draw(name);
});
themes.observe(document.body, { attributes: true, attributeFilter: ['class'] });

new ResizeObserver(() => {
  for (const { node } of charts.values()) if (node.clientWidth && node.data) window.Plotly.Plots.resize(node);
}).observe(root);

watch('value', update);
update();
