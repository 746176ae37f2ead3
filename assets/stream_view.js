// The live view of one run. gr.HTML calls the whole script once per mount with `element`, `props` and `watch`.
//
// props.value is one string that only grows, a line of JSON a record (fastinfer/ui/records.py); this script
// reads the new suffix and paints it. Text enters the page by textContent alone and is never parsed.

const NEAR_BOTTOM_PX = 32;

const places = new Map([...root.querySelectorAll('[data-text]')].map((node) => [node.dataset.text, node]));
const blanks = new Map([...places].map(([name, node]) => [name, node.textContent]));
const promptSpan = part('prompt');

let read = 0; // characters of the value that were painted
let silent = 0; // tokens before this one that made no whole character yet

// Text as it is, or with its spaces as signs: a break after each, so that lines still wrap.
function shown(text) {
  if (root.dataset.spaces !== 'on') return text;
  return text.replace(/[ \u00a0\t\r\n]/g, (c) => SIGNS[c] + (c === ' ' ? '\u200b' : c === '\u00a0' ? '' : c));
}

function tokenSpan(token) {
  const span = document.createElement('span');
  span.className = 'fi-token fi-' + token.origin;
  if (/^\s*\n\s*$/.test(token.text)) span.classList.add('fi-newline'); // else a bare line break has no colour
  span.dataset.origin = token.origin;
  span.dataset.index = spans.length;
  span.textContent = shown(token.text);
  return span;
}

function refusedMark(token) { // drawn by the style sheet, so that the text stays the text
  const mark = document.createElement('del');
  mark.className = 'fi-refused';
  mark.dataset.text = visible(token.text);
  return mark;
}

function addTokens(step) {
  const fresh = document.createDocumentFragment();
  for (const token of step.tokens) {
    const refused = step.rejected.filter((other) => other.position === token.position);
    const span = tokenSpan(token);
    spans.push({ token, round: step.index, silent: token.text ? silent : 0, refused });
    silent = token.text ? 0 : silent + 1;
    fresh.append(...refused.map(refusedMark), span);
  }
  output.append(fresh);
}

function endPreview() { // the baseline's text makes room for the run's
  part('preview').textContent = '';
}

function setTexts(texts) {
  for (const [name, text] of Object.entries(texts)) if (places.has(name)) places.get(name).textContent = say(text);
}

function setState(state, summary) {
  root.dataset.state = state;
  endPreview();
  part('summary').textContent = say(summary); // the one polite announcement, at the end
}

function reset(opened) {
  forgetTokens();
  silent = 0;
  length = opened.length;
  beginRun(opened.prompt);
  setTexts(Object.fromEntries(blanks));
  root.dataset.law = '';
  setBars(Object.fromEntries([...root.querySelectorAll('[data-bars]')].map((row) => [row.dataset.bars, []])));
  promptSpan.textContent = opened.prompt;
  output.textContent = '';
  box.scrollTop = box.scrollHeight;
  if (root.getBoundingClientRect().top > 0.7 * innerHeight) root.scrollIntoView(); // a phone: form above, view below
  clearCharts();
}

function paintEvent(event) {
  noteEvent(event);
  if (event.type === 'started') endPreview();
  if (event.type === 'step') addTokens(event);
}

function paint(record) {
  if (record.open) reset(record.open);
  else if (record.text) setTexts(record.text);
  else if (record.event) paintEvent(record.event);
  else if (record.preview) part('preview').append(shown(record.preview));
  else if (record.points) addPoints(record.points);
  else if (record.bars) setBars(record.bars);
  else if (record.law) root.dataset.law = record.law;
  else if (record.link) run.link = record.link;
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
  // Asked and set once for all records: each time the whole text is laid out.
  const stuck = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_BOTTOM_PX;
  for (const line of fresh.split('\n')) if (line) paint(JSON.parse(line));
  if (stuck) box.scrollTop = box.scrollHeight;
}

// --- What the visitor can switch ----------------------------------------------------------------------

root.querySelectorAll('.fi-key').forEach((key) => key.addEventListener('click', () => {
  const only = root.dataset.only === key.dataset.origin ? '' : key.dataset.origin;
  root.dataset.only = only;
  root.querySelectorAll('.fi-key').forEach((k) => k.setAttribute('aria-pressed', String(k.dataset.origin === only)));
}));

root.querySelectorAll('[data-toggle]').forEach((button) => button.addEventListener('click', () => {
  const on = button.getAttribute('aria-pressed') !== 'true';
  button.setAttribute('aria-pressed', String(on));
  root.dataset[button.dataset.toggle] = on ? 'on' : '';
  hideTip();
  if (button.dataset.toggle !== 'spaces') return;
  for (const span of output.querySelectorAll('.fi-token')) span.textContent = shown(spans[span.dataset.index].token.text);
}));

// --- Life ---------------------------------------------------------------------------------------------

// The page says that its run is over. If no record said so before, it was stopped.
// The last records may come a moment later than that news.
root.addEventListener('fi-over', () => {
  const over = head;
  setTimeout(() => {
    update();
    if (root.dataset.state !== 'running' || head !== over) return; // ended in words, or another has begun
    const told = `Stopped after ${spans.length} token${spans.length === 1 ? '' : 's'}.`;
    setTexts({ phase: told });
    setState('stopped', told);
  }, CHART_MS);
});

for (const spec of props.charts) {
  charts.set(spec.name, { spec, node: root.querySelector(`[data-chart="${spec.name}"]`), data: [] });
  clearChart(spec.name);
}
watchCharts();
watch('value', update);
update();
