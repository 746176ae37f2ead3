// The replay of a comparison. gr.HTML calls this once per mount; props.value is JSON of
// fastinfer/ui/compare_record.py. All tokens are on the page from the start, unseen, so that nothing moves
// while they appear; a clock says which of them can be seen.

const TICK_MS = 50;
const root = element.querySelector('.fi-compare');
const find = (selector) => root.querySelector(selector);
const play = find('[data-part=play]'), slider = find('input[type=range]'), clock = find('[data-part=clock]');
const calm = matchMedia('(prefers-reduced-motion: reduce)');
let record = null, shown = '', columns = [], now = 0, timer = null, last = 0;

const seconds = (ms) => (ms / 1000).toFixed(2) + ' s';

function columnBox(column, index) {
  const box = make('article', undefined, 'fi-column');
  const head = make('header'), facts = make('dl', undefined, 'fi-facts'), text = make('div', undefined, 'fi-tokens');
  head.append(make('strong', say(column.name)));
  if (column.speedup) head.append(make('b', column.speedup));
  if (!column.lossless) head.append(make('em', say('lossy')));
  for (const [name, value] of column.facts) {
    const pair = make('div');
    pair.append(make('dt', say(name)), make('dd', value));
    if (name === 'KV caches') pair.title = column.cache;
    facts.append(pair);
  }
  const bar = make('div', undefined, 'fi-track');
  bar.style.setProperty('--fi-track', column.color);
  bar.append(make('i'));
  const count = make('p', '', 'fi-count');
  text.tabIndex = 0;
  text.setAttribute('role', 'region');
  text.setAttribute('aria-label', 'Text of ' + column.name);
  text.append(make('span', record.prompt, 'fi-prompt'));
  const spans = column.tokens.map(([words, origin], place) => {
    const span = make('span', words, 'fi-token fi-' + origin + ' fi-later');
    if (/^\s*\n\s*$/.test(words)) span.classList.add('fi-newline');
    if (place === column.first_difference) span.classList.add('fi-parts');
    span.title = say(origin);
    text.append(span);
    return span;
  });
  box.append(head, facts, bar, count, text);
  return { box, text, spans, bar: bar.firstElementChild, count, times: column.tokens.map((token) => token[2]), seen: 0 };
}

function reveal(column) { // spans whose time has come, and no others
  let { seen } = column;
  const { spans, times } = column;
  while (seen < spans.length && times[seen] <= now) spans[seen++].classList.remove('fi-later');
  while (seen > 0 && times[seen - 1] > now) spans[--seen].classList.add('fi-later');
  if (seen === column.seen && seen) return;
  column.seen = seen;
  const over = seen === spans.length;
  column.bar.style.width = (100 * seen / Math.max(1, spans.length)) + '%';
  column.count.textContent = say(`${seen} of ${spans.length} tokens` + (over ? ` after ${seconds(times[spans.length - 1])}` : ''));
  if (seen) column.text.scrollTop = Math.max(0, spans[seen - 1].offsetTop - column.text.clientHeight * 0.7);
}

function show(ms) {
  now = Math.min(ms, record.end_ms);
  slider.value = Math.round(1000 * now / record.end_ms);
  slider.setAttribute('aria-valuetext', seconds(now));
  clock.textContent = say(`${seconds(now)} of ${seconds(record.end_ms)}`);
  columns.forEach(reveal);
}

function stop() {
  clearInterval(timer);
  timer = null;
  play.textContent = say(now >= record.end_ms ? 'Replay' : 'Play');
}

function start() {
  if (now >= record.end_ms) { columns.forEach((column) => { column.text.scrollTop = 0; }); show(0); }
  last = performance.now();
  clearInterval(timer);
  timer = setInterval(() => {
    const at = performance.now();
    const speed = Number(find('[data-part=speed]').value);
    show(now + (at - last) * speed);
    last = at;
    if (now >= record.end_ms) stop();
  }, TICK_MS);
  play.textContent = say('Pause');
}

function tokensChart() {
  const traces = record.columns.map((column) => ({
    type: 'scatter', mode: 'lines', name: column.name,
    x: column.tokens.map((token) => token[2] / 1000), y: column.tokens.map((_, i) => i + 1),
    line: { color: column.color, width: 2, shape: 'hv' }, hovertemplate: '%{y} tokens after %{x:.2f} s',
  }));
  const axis = { gridcolor: 'var(--fi-grid)', linecolor: 'var(--fi-grid)', zeroline: false, rangemode: 'tozero', automargin: true };
  return {
    name: 'compare', title: 'Tokens over time', note: 'Steeper is faster; a step is one pass of the target.', traces,
    layout: {
      height: 240, margin: { l: 50, r: 12, t: 8, b: 40 }, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: { color: 'var(--fi-muted)', size: 11, family: 'system-ui, sans-serif' }, showlegend: true,
      legend: { orientation: 'h', y: 1.02, yanchor: 'bottom', x: 0 },
      hoverlabel: { bgcolor: 'var(--fi-panel)', bordercolor: 'var(--fi-grid)', font: { color: 'var(--fi-ink)' } },
      xaxis: { ...axis, title: { text: 'seconds since the request', standoff: 6 } },
      yaxis: { ...axis, title: { text: 'tokens', standoff: 6 } },
    },
  };
}

function drawChart() {
  const box = find('.fi-reports');
  const chart = tokensChart();
  if (!box.firstElementChild) box.append(figureBox(chart));
  plotInto(box.querySelector('[data-chart]'), chart, root);
}

function verdictBox(verdict) {
  const box = make('div', undefined, 'fi-verdict');
  box.append(make('strong'), make('span'));
  fillVerdict(box, verdict);
  return box;
}

function paint() {
  if (record.state === 'running' && root.dataset.state !== 'running') bringIntoView(root);
  root.dataset.state = record.state;
  find('[data-part=title]').textContent = say(record.title);
  find('[data-part=detail]').textContent = say(record.detail);
  fillBar(find('.fi-bar'), record.progress, record.state === 'running');
  find('.fi-summary').textContent = record.state === 'failed' ? say(record.title) : '';
  if (record.state !== 'done') return; // an earlier replay stays until there is a new one
  find('.fi-verdicts').replaceChildren(...record.verdicts.map(verdictBox));
  find('.fi-summary').textContent = record.verdicts.map((verdict) => say(verdict.text)).join('. ');
  columns = record.columns.map(columnBox);
  const list = find('.fi-columns');
  list.dataset.count = columns.length;
  list.replaceChildren(...columns.map((column) => column.box));
  find('.fi-player').hidden = false;
  drawChart();
  show(calm.matches ? record.end_ms : 0);
  if (calm.matches) stop(); else start();
}

function update() {
  if (typeof props.value !== 'string' || !props.value || props.value === shown) return;
  shown = props.value;
  const next = JSON.parse(shown);
  if (next.state === 'done') { clearInterval(timer); timer = null; }
  if (next.state !== 'done' && record && record.columns) record = { ...record, ...next }; // keep the replay's data
  else record = next;
  paint();
}

sayAll(root);
play.addEventListener('click', () => { if (timer) stop(); else start(); });
slider.addEventListener('input', () => { if (timer) stop(); show(record.end_ms * slider.value / 1000); stop(); });

onOver(root, update);

onTheme(() => record && record.columns && drawChart());
onSize(root);
watch('value', update);
update();
