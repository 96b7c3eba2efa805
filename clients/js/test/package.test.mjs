import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

const root = new URL('..', import.meta.url).pathname;
const project = mkdtempSync(join(tmpdir(), 'whence-client-'));
after(() => rmSync(project, { recursive: true }));

// pack makes the package and unpacks it where a project has its dependencies. It needs no registry.
function pack() {
  const env = { ...process.env, npm_config_cache: join(project, 'cache'), npm_config_offline: 'true', npm_config_update_notifier: 'false' };
  const out = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', project], { cwd: root, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const [made] = JSON.parse(out);
  const dir = join(project, 'node_modules', '@whence', 'client');
  mkdirSync(dir, { recursive: true });
  execFileSync('tar', ['-xzf', join(project, made.filename), '-C', dir, '--strip-components=1']);
  return { dir, files: made.files.map((f) => f.path) };
}

test('the packed client has its sources, types and licence, and can be imported by its name', () => {
  const { dir, files } = pack();
  for (const name of ['LICENSE', 'README.md', 'package.json', 'src/index.js', 'src/index.d.ts']) assert.ok(files.includes(name), name);
  for (const name of files) assert.match(name, /^(LICENSE|README\.md|package\.json|src\/[\w.]+\.(js|d\.ts))$/);

  const made = JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8'));
  for (const target of [...Object.values(made.exports['.']), made.types]) assert.ok(files.includes(target.replace('./', '')), target);
  assert.equal(made.dependencies, undefined);

  // What a project gets by the package's name is what the types declare.
  const names = execFileSync(process.execPath, ['--input-type=module', '-e', "console.log(Object.keys(await import('@whence/client')).sort().join())"], { cwd: project, encoding: 'utf8' });
  const declared = [...readFileSync(join(dir, 'src/index.d.ts'), 'utf8').matchAll(/^export (?:declare )?(?:class|function|const) (\w+)/gm)].map((m) => m[1]);
  assert.ok(declared.length > 0);
  assert.equal(names.trim(), declared.sort().join());
  assert.throws(() => execFileSync(process.execPath, ['--input-type=module', '-e', "await import('@whence/client/src/sse.js')"], { cwd: project, stdio: 'pipe' }), /ERR_PACKAGE_PATH_NOT_EXPORTED/);
});

test('links of the packed README lead to pages that exist outside of the repository', () => {
  const readme = readFileSync(join(root, 'README.md'), 'utf8');
  const links = [...readme.matchAll(/\]\(([^)#]+)/g)].map((m) => m[1]);
  assert.ok(links.length > 0);
  for (const link of links) {
    const local = link.match(/^https:\/\/github\.com\/whence-dev\/whence\/blob\/main\/(.*)$/);
    assert.ok(local, `${link} does not work on the page of the package`);
    readFileSync(join(root, '../..', local[1]));
  }
});
