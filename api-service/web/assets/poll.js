// poll calls question repeatedly while the page is visible, one call at a time, until question
// returns false or the returned function is called.
export function poll(every, question) {
  let timer = 0;
  let over = false;
  let asking = false;
  const ask = async () => {
    clearTimeout(timer);
    if (over || asking || document.hidden) return;
    asking = true;
    const goOn = await question();
    asking = false;
    if (goOn === false) close();
    if (!over) timer = setTimeout(ask, every);
  };
  const close = () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', ask);
  };
  document.addEventListener('visibilitychange', ask);
  ask();
  return close;
}
