// Names as people see them: as `visible` and `is_hidden` of the library, with the same characters.

const HIDDEN = "\\0-\\x1f\\x7f-\\x9f\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u115f\\u1160"
  + "\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0"
  + "\\ufff0-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{1343f}\\u{16fe4}\\u{1bca0}-\\u{1bca3}\\u{1d159}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}";
const BLANK = "\\xa0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000";
const ANY = new RegExp(`[${HIDDEN}]`, "u"), EACH = new RegExp(ANY, "gu"), IN_NAMES = new RegExp(` |\\\\(?=u\\{)|[${HIDDEN}${BLANK}]`, "gu");
const UNSEEN = new RegExp(`[${HIDDEN}${BLANK}]`, "gu");
const escaped = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

// A text that may contain names: nothing in it changes the direction of the text around it.
// Everything that enters the document goes through here.
const plain = (text) => ANY.test(text) ? String(text).replace(EACH, escaped) : text;

// A name or a path: two that differ never look the same because of invisible characters.
const visible = (name) => name.replace(IN_NAMES, (c, at) => {
  const [before, after] = [name[at - 1] ?? " ", name[at + 1] ?? "/"];
  return c === " " && before !== " " && before !== "/" && after !== "/" ? c : escaped(c);
});

// A path as in a line of a file: quoted as in JSON if it would otherwise be misread.
const inFile = (path) => {
  const unit = (u) => `\\u${u.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return /[\s#]/.test(path) || ANY.test(path) ? JSON.stringify(path).replace(UNSEEN, (c) => c.split("").map(unit).join("")) : path;
};

// A command that sets limits. The token stays in the shell's variable: copied text may be pasted anywhere.
const curl = (address, limits, asksToken) => {
  const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
  const token = asksToken ? ' -H "Authorization: Bearer $TOKEN"' : "";
  return `curl -H 'X-Submeter: 1'${token} --data-raw ${quoted(limits)} ${quoted(address)}`;
};
