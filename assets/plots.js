// What all views share: text by textContent, and charts that follow the theme and the width.

const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

function resolved(spec, root) { // every "var(--x)" as the theme has it now; titles and names in the reader's words
  const style = getComputedStyle(root);
  const walk = (v, key) => typeof v === 'string'
    ? key === 'text' || key === 'name' ? say(v) : v.replace(/^var\((--[\w-]+)\)$/, (_, name) => style.getPropertyValue(name).trim())
    : Array.isArray(v) ? v.map((x) => walk(x))
    : v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x, k)]))
    : v;
  return walk(spec);
}

function react(node, traces, layout) {
  if (window.Plotly) window.Plotly.react(node, traces, layout, { displayModeBar: false, responsive: false });
  else node.textContent = say('The chart library did not load.');
}

function plotInto(node, chart, root) {
  const { traces, layout } = resolved({ traces: chart.traces, layout: chart.layout }, root);
  react(node, traces, layout);
}

function figureBox(chart) {
  const figure = make('figure', undefined, 'fi-chart'), caption = make('figcaption');
  caption.append(make('strong', say(chart.title)), make('span', say(chart.note), 'fi-chart-note'));
  const plot = make('div');
  plot.dataset.chart = chart.name;
  figure.append(caption, plot);
  return figure;
}

function fillFigures(list, figures) {
  list.hidden = !figures.length;
  list.replaceChildren(...figures.map((figure) => {
    const box = make('div');
    box.title = say(figure.help);
    box.append(make('dt', say(figure.name)), make('dd', figure.value));
    return box;
  }));
}

function fillVerdict(box, verdict) {
  box.hidden = !verdict;
  if (!verdict) return;
  box.dataset.tone = verdict.tone;
  box.querySelector('strong').textContent = say(verdict.text);
  box.querySelector('span').textContent = say(verdict.more);
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
    for (const part of ['[data-part=title]', '.fi-summary']) root.querySelector(part).textContent = say('Stopped.');
    root.querySelector('.fi-bar').hidden = true;
  }, 300));
}
