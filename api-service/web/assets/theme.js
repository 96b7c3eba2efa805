// Light or dark. A classic script in the head, so that the choice holds before the first paint.
//
// A choice is stored only while it differs from the system's setting: choosing the system's setting
// follows the system again.
(() => {
  const key = 'whence-theme';
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');

  function stored() {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage is blocked: the choice lasts as long as the page
    }
  }

  function store(theme) {
    try {
      if (theme) localStorage.setItem(key, theme);
      else localStorage.removeItem(key);
    } catch {
      // as above
    }
  }

  const first = stored();
  if (first === 'light' || first === 'dark') root.dataset.theme = first;

  addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const isDark = () => (root.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
    const show = () => (button.textContent = isDark() ? 'Light' : 'Dark'); // what a click gives
    button.addEventListener('click', () => {
      const theme = isDark() ? 'light' : 'dark';
      if ((theme === 'dark') === system.matches) {
        delete root.dataset.theme;
        store(null);
      } else {
        root.dataset.theme = theme;
        store(theme);
      }
      show();
    });
    system.addEventListener('change', show);
    show();
  });
})();
