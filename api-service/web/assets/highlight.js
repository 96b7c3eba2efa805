// Colours for code. The tokenizer and the languages are copies of @speed-highlight/core; this file
// makes the elements, so that no text of an answer is parsed as HTML.

import { tokenizer } from './highlight/tokenize.js';
import { node } from './node.js';

const longest = 20_000; // characters; longer code stays plain

// A language is loaded with the first code in it, or in a language that contains it.
const languages = {
  bash: () => import('./highlight/languages/bash.js'),
  c: () => import('./highlight/languages/c.js'),
  css: () => import('./highlight/languages/css.js'),
  diff: () => import('./highlight/languages/diff.js'),
  docker: () => import('./highlight/languages/docker.js'),
  go: () => import('./highlight/languages/go.js'),
  java: () => import('./highlight/languages/java.js'),
  js: () => import('./highlight/languages/js.js'),
  jsdoc: () => import('./highlight/languages/jsdoc.js'),
  json: () => import('./highlight/languages/json.js'),
  lua: () => import('./highlight/languages/lua.js'),
  make: () => import('./highlight/languages/make.js'),
  md: () => import('./highlight/languages/md.js'),
  py: () => import('./highlight/languages/py.js'),
  regex: () => import('./highlight/languages/regex.js'),
  rs: () => import('./highlight/languages/rs.js'),
  sql: () => import('./highlight/languages/sql.js'),
  todo: () => import('./highlight/languages/todo.js'),
  toml: () => import('./highlight/languages/toml.js'),
  ts: () => import('./highlight/languages/ts.js'),
  xml: () => import('./highlight/languages/xml.js'),
  yaml: () => import('./highlight/languages/yaml.js'),
};

const aliases = {
  sh: 'bash', shell: 'bash', zsh: 'bash', console: 'bash', cpp: 'c', 'c++': 'c', h: 'c', dockerfile: 'docker', golang: 'go', html: 'xml', htm: 'xml', svg: 'xml', javascript: 'js',
  jsx: 'js', mjs: 'js', jsonc: 'json', makefile: 'make', markdown: 'md', python: 'py', rust: 'rs', typescript: 'ts', tsx: 'ts', yml: 'yaml', proto: 'go', kotlin: 'java',
};

// highlight colours the text of an element, if its language is known.
export async function highlight(element, text, name) {
  const word = (name ?? '').trim().toLowerCase().split(/\s/)[0];
  const language = Object.hasOwn(aliases, word) ? aliases[word] : word;
  if (!Object.hasOwn(languages, language) || text.length > longest) return;
  const parts = [];
  try {
    const steps = tokenizer(text, language, (part, type) => parts.push(type ? node('span', { class: `hl-${type}` }, part) : part));
    for (let step = steps.next(); !step.done;) {
      step = steps.next(Object.hasOwn(languages, step.value) ? (await languages[step.value]()).default : undefined);
    }
  } catch {
    return; // the file of a language could not be loaded
  }
  element.replaceChildren(...parts);
}
