// The console: it shows the view that the address names, and the parts that all views share.

import { chatPage } from './chatpage.js';
import { overviewPage } from './overviewpage.js';
import { streamPage } from './streampage.js';
import { streamsPage } from './streamspage.js';
import { workersPage } from './workerspage.js';

const chat = document.getElementById('chat');
const page = document.getElementById('page');
const showChat = chatPage();

// The views beside the chat, by the path in the address. Each fills the page and returns a function
// that closes it.
const views = [
  [/^\/overview\/?$/, 'Overview', overviewPage],
  [/^\/streams\/?$/, 'Streams', streamsPage],
  [/^\/streams\/([^/]+)$/, 'Stream', streamPage],
  [/^\/workers(?:\/([^/]*))?$/, 'Workers', workersPage],
];

let close = () => {};
let first = true;

// show shows the view that the address names. The chat stays hidden behind other views, and its
// current answer continues.
function show() {
  const [path, query = ''] = location.hash.slice(1).split('?');
  close();
  close = () => {};
  page.replaceChildren();
  const view = views.find(([pattern]) => pattern.test(path));
  chat.hidden = Boolean(view);
  page.hidden = !view;
  page.dataset.view = view?.[1] ?? '';
  document.title = view ? `${view[1]} – Whence` : 'Whence';
  for (const link of document.querySelectorAll('.bar nav a')) {
    const to = link.hash.slice(1);
    const current = view ? link.id !== 'chat-link' && path.startsWith(to) : link.id === 'chat-link';
    if (current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (view) {
    close = view[2](page, part(view[0].exec(path)[1]), new URLSearchParams(query));
    page.scrollTop = 0;
    if (!first) page.querySelector('h2').focus({ preventScroll: true });
  } else {
    showChat(/^\/chats\/([\w-]+)$/.exec(path)?.[1]);
  }
  first = false;
}

// part decodes a piece of the address. A piece that is not valid URL encoding stays as it is.
function part(text = '') {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault(); // only views may change the address
  (page.hidden ? document.getElementById('prompt') : page.querySelector('h2')).focus();
});
addEventListener('hashchange', show);
show();
