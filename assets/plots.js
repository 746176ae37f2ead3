// What the views of the measuring tabs share: text by textContent, and charts that follow the theme.

const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

function resolved(spec, root) { // every "var(--x)" as the theme has it now
  const style = getComputedStyle(root);
  const walk = (v) => typeof v === 'string' ? v.replace(/^var\((--[\w-]+)\)$/, (_, name) => style.getPropertyValue(name).trim())
    : Array.isArray(v) ? v.map(walk)
    : v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x)]))
    : v;
  return walk(spec);
}

function plotInto(node, chart, root) {
  if (!window.Plotly) { node.textContent = 'The chart library did not load.'; return; }
  const { traces, layout } = resolved({ traces: chart.traces, layout: chart.layout }, root);
  window.Plotly.react(node, traces, layout, { displayModeBar: false, responsive: false });
}

function figureBox(chart) {
  const figure = make('figure', undefined, 'fi-chart'), caption = make('figcaption');
  caption.append(make('strong', chart.title), make('span', chart.note, 'fi-chart-note'));
  const plot = make('div');
  plot.dataset.chart = chart.name;
  figure.append(caption, plot);
  return figure;
}

function fillFigures(list, figures) {
  list.hidden = !figures.length;
  list.replaceChildren(...figures.map((figure) => {
    const box = make('div');
    box.title = figure.help;
    box.append(make('dt', figure.name), make('dd', figure.value));
    return box;
  }));
}

function fillVerdict(box, verdict) {
  box.hidden = !verdict;
  if (!verdict) return;
  box.dataset.tone = verdict.tone;
  box.querySelector('strong').textContent = verdict.text;
  box.querySelector('span').textContent = verdict.more;
}

function fillBar(bar, share, running) {
  bar.hidden = !running;
  const percent = share === null || share === undefined ? null : Math.round(100 * share);
  bar.classList.toggle('fi-unknown', percent === null);
  bar.firstElementChild.style.width = percent === null ? '' : percent + '%';
  if (percent === null) bar.removeAttribute('aria-valuenow');
  else bar.setAttribute('aria-valuenow', percent);
}

function bringIntoView(root) { // a phone has the form above and the view below
  if (root.getBoundingClientRect().top > 0.7 * innerHeight) root.scrollIntoView();
}

function onTheme(redraw) { // calls redraw where the page goes from light to dark or back
  let dark = document.body.classList.contains('dark');
  new MutationObserver(() => {
    const now = document.body.classList.contains('dark');
    if (now !== dark) { dark = now; redraw(); }
  }).observe(document.body, { attributes: true, attributeFilter: ['class'] });
}

function onSize(root) {
  new ResizeObserver(() => {
    for (const node of root.querySelectorAll('[data-chart]'))
      if (node.clientWidth && node.data) window.Plotly.Plots.resize(node);
  }).observe(root);
}

function onOver(root, update) { // the run has ended, however it did; the last value may come a moment later
  root.addEventListener('fi-over', () => setTimeout(() => {
    update();
    if (root.dataset.state !== 'running') return;
    root.dataset.state = 'stopped';
    for (const part of ['[data-part=title]', '.fi-summary']) root.querySelector(part).textContent = 'Stopped.';
    root.querySelector('.fi-bar').hidden = true;
  }, 300));
}
