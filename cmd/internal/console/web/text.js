// How numbers, times and keys read.

export const count = new Intl.NumberFormat('en');
export const few = new Intl.NumberFormat('en', {maximumFractionDigits: 1});

// percent is a share in per cent; what is not nothing does not read as nothing.
export function percent(share) {
  const p = share * 100;
  if (p === 0) return '0 %';
  if (p < 0.01) return '< 0.01 %';
  return p.toLocaleString('en', {maximumFractionDigits: p < 1 ? 2 : p < 10 ? 1 : 0}) + ' %';
}

// What cannot be seen, or turns the text beside it round; but not what joins one picture of several.
const unseen = /(\p{Extended_Pictographic}\ufe0f?\u200d(?=\p{Extended_Pictographic}))|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

// A key is a string, or {base64} if it is not text. keyText is one to read.
export const keyText = (key) => typeof key !== 'string' ? 'base64:' + key.base64
  : key.replace(unseen, (c, joined) => joined || '\\u{' + c.codePointAt(0).toString(16) + '}') || '(empty)';

// keyInput is one to look up, as a field of a form keeps it.
export const keyInput = (key) => typeof key !== 'string' ? 'base64:' + key.base64
  : key.search(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|^base64:/u) < 0 ? key
    : 'base64:' + btoa(String.fromCharCode(...new TextEncoder().encode(key)));

export const keyFields = (key) => typeof key === 'string' ? {key} : {key_base64: key.base64};

// shortName is a part's name as far as people tell them apart: an epoch is long.
export const shortName = (name) => name.split('.').map((part, i, all) => i === all.length - 1 ? part.slice(0, 8) : part).join('.');

// span says how long something is.
export function span(ms) {
  if (ms < 0) return 'never';
  if (ms < 1000) return count.format(Math.round(ms)) + ' ms';
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  let s = Math.round(ms / 1000), parts = [];
  for (const [name, length] of units) {
    if (s >= length && parts.length < 2) {
      parts.push(Math.floor(s / length) + ' ' + name);
      s %= length;
    }
  }
  return parts.join(' ');
}

export function limitText(r) {
  if (!r) return '';
  const what = {fixed_window: ', fixed', sliding_log: ', log', token_bucket: ', token bucket', leaky_bucket: ', leaky bucket'}[r.algorithm] || '';
  const unit = {1000: 'second', 60000: 'minute', 3600000: 'hour', 86400000: 'day'}[r.window_ms];
  return count.format(r.limit) + ' per ' + (unit || span(r.window_ms)) + what;
}
