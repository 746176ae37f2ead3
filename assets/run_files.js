// A run as a link or a file, made in the browser from what the engine said. No server keeps a copy.

const run = { prompt: '', link: '', events: [] };

function savedJson() {
  return JSON.stringify({ prompt: run.prompt, events: run.events }, null, 1);
}

// A row per token. Text stands as JSON writes it, so a line break keeps its row and no spreadsheet takes
// a token for a formula.
function savedCsv() {
  const cell = (value) => /[",\n\r]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value ?? '');
  const lines = [['index', 'round', 'position', 'id', 'text', 'origin', 'target_prob', 'draft_prob', 'accept_prob',
    'refused_text', 'elapsed_ms']];
  for (const step of run.events) {
    if (step.type !== 'step') continue;
    for (const token of step.tokens) {
      const refused = step.rejected.find((other) => other.position === token.position);
      lines.push([lines.length - 1, step.index, token.position, token.id, JSON.stringify(token.text), token.origin,
        token.target_prob, token.draft_prob, token.accept_prob, refused ? JSON.stringify(refused.text) : '',
        step.elapsed_ms]);
    }
  }
  return lines.map((line) => line.map(cell).join(',')).join('\r\n') + '\r\n';
}

// A page of its own. The run enters it as JSON in which no tag can begin or end.
function savedReplay() {
  const data = JSON.stringify({ prompt: run.prompt, events: run.events }).replace(/</g, '\\u003c');
  return props.replay.replace('__RUN__', () => data);
}

const FILES = {
  json: ['application/json', savedJson],
  csv: ['text/csv', savedCsv],
  html: ['text/html', savedReplay],
};

function download(kind) {
  const [type, make] = FILES[kind];
  const address = URL.createObjectURL(new Blob([make()], { type: type + ';charset=utf-8' }));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = `fastinfer-run.${kind}`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function copyLink(button) {
  const address = location.origin + location.pathname + '#' + run.link;
  history.replaceState(null, '', '#' + run.link);
  const usual = say('Copy link');
  try {
    await navigator.clipboard.writeText(address);
    button.textContent = say('Copied');
  } catch { // a frame may not be allowed to
    button.textContent = say('In address');
  }
  setTimeout(() => { button.textContent = usual; }, 2000);
}

const savers = [...root.querySelectorAll('[data-save]')];
for (const button of savers) {
  button.addEventListener('click', () => button.dataset.save === 'link' ? copyLink(button) : download(button.dataset.save));
}

function beginRun(prompt) {
  Object.assign(run, { prompt, link: '', events: [] });
  for (const button of savers) button.disabled = true;
}

function noteEvent(event) {
  run.events.push(event);
  if (event.type === 'step' && savers[0].disabled) for (const button of savers) button.disabled = false;
}
