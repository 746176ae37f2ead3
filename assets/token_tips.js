// One tooltip for all tokens, by pointer, tap and keyboard, with what the engine said about that token.

const box = part('tokens'), output = part('output'), tip = part('tip');
const origins = Object.fromEntries([...root.querySelectorAll('.fi-key')].map((key) => [key.dataset.origin, key.title]));
const name = element.closest('[id]')?.id || 'view';
tip.id = name + '-tip';

let spans = []; // what is known of each token, in order
let current = null; // the span that the tooltip is about
let walking = -1; // where the arrow keys are

const SIGNS = { ' ': '·', '\u00a0': '⍽', '\t': '→', '\n': '↵', '\r': '␍' };
const percent = (p) => (100 * p).toFixed(2) + ' %';

// Spaces and breaks as signs; a character that shows nothing or turns the writing round, by its number.
function visible(text) {
  return text.replace(/[ \u00a0\t\n\r]/g, (c) => SIGNS[c])
    .replace(/[\p{Cc}\p{Cf}]/gu, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

function refusedWords(token) {
  return `${visible(token.text)} (target ${percent(token.target_prob)}, draft ${percent(token.draft_prob)}, `
    + `accepted with ${percent(token.accept_prob)})`;
}

function tipRows({ token, round, silent, refused }) {
  const rows = [['origin', say(token.origin)], ['position', `${token.position} · round ${round}`],
    ['target', percent(token.target_prob)]];
  if (token.draft_prob != null) rows.push(['draft', percent(token.draft_prob)]);
  if (token.accept_prob != null) rows.push(['accepted with', percent(token.accept_prob)]);
  for (const other of refused) rows.push(['refused here', refusedWords(other)]);
  if (silent) rows.push(['bytes', `completes a character begun ${silent} token${silent > 1 ? 's' : ''} before`]);
  return rows;
}

function row(cells) {
  const line = document.createElement('div');
  for (const cell of cells) {
    const node = document.createElement('span');
    node.textContent = cell;
    line.append(node);
  }
  return line;
}

function showTip(span) {
  hideTip();
  current = span;
  const known = spans[span.dataset.index];
  tip.replaceChildren(row([visible(known.token.text) || '(part of a character)']), ...tipRows(known).map(([name, words]) => row([say(name), words])),
    row([origins[known.token.origin] || '']));
  tip.hidden = false;
  span.classList.add('fi-current');
  placeTip();
}

function hideTip() {
  if (current) current.classList.remove('fi-current');
  current = null;
  tip.hidden = true;
}

function placeTip() {
  if (!current) return;
  const frame = root.getBoundingClientRect(), at = current.getClientRects()[0] || current.getBoundingClientRect();
  const inside = box.getBoundingClientRect();
  if (at.bottom < inside.top || at.top > inside.bottom) { hideTip(); return; }
  const left = Math.min(at.left - frame.left, frame.width - tip.offsetWidth - 4);
  const above = at.top - tip.offsetHeight - 6;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = (above < 0 ? at.bottom + 6 : above) - frame.top + 'px';
}

function hover(event) {
  const span = event.target.closest('.fi-token');
  if (span) showTip(span); else hideTip();
}

function walk(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === 'Escape') { hideTip(); return; }
  if (!step || !spans.length || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const shown = current ? Number(current.dataset.index) : walking;
  walking = Math.max(0, Math.min(spans.length - 1, shown + step));
  const span = output.querySelector(`[data-index="${walking}"]`);
  span.scrollIntoView({ block: 'nearest' });
  showTip(span);
  span.id = `${name}-token-${walking}`;
  span.setAttribute('aria-describedby', tip.id);
  box.setAttribute('aria-activedescendant', span.id);
}

function forgetTokens() {
  hideTip();
  spans = [];
  walking = -1;
  box.removeAttribute('aria-activedescendant');
}

box.addEventListener('pointerover', hover);
box.addEventListener('click', hover); // a tap
box.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') hideTip(); });
box.addEventListener('scroll', placeTip);
box.addEventListener('blur', hideTip);
box.addEventListener('keydown', walk);
root.addEventListener('pointerdown', (event) => { if (!box.contains(event.target)) hideTip(); });
