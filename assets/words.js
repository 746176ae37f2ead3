// First part of every view's script: what the view says, in the reader's language. The table is that of
// assets/chinese.json; the rule by which a language is chosen is gradio's own.

const told = props.words && props.words.locales.includes(navigator.language) ? props.words : { words: {}, sentences: {} };
const sentences = Object.entries(told.sentences).sort(([a], [b]) => b.length - a.length).map(([english, words]) => [
  new RegExp('^' + english.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{\}/g, '(.+?)') + '$'), words]);

function say(text) {
  if (!text || !sentences.length) return text;
  if (Object.hasOwn(told.words, text)) return told.words[text];
  for (const [pattern, words] of sentences) {
    const found = pattern.exec(text);
    if (found) return words.replace(/\{(\d)\}/g, (_, number) => say(found[number]));
  }
  return text.includes(' · ') ? text.split(' · ').map(say).join(' · ') : text;
}

function sayAll(root) { // what is there from the start; texts that records fill are said as they come
  for (const node of root.querySelectorAll('[data-word]')) node.textContent = say(node.textContent);
  for (const name of ['title', 'aria-label'])
    for (const node of root.querySelectorAll(`[${name}]`)) node.setAttribute(name, say(node.getAttribute(name)));
}
