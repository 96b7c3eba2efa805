// The browser of the tests: CHROMIUM is its executable; the default is chromium on PATH.

import { execFileSync } from 'node:child_process';

export const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

export function executable() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
    } catch {
      // not in this directory
    }
  }
  throw new Error('no chromium on PATH: set CHROMIUM to its executable');
}
