package rules

import (
	"strings"
	"testing"
)

// Each refusal of the fields beyond the simplest rule. one begins its fields on line 5, column 3.
func TestRefusalsOfFields(t *testing.T) {
	const other = "- {name: b, key: [], limit: 1/s}\n"
	for _, tt := range []struct{ why, yaml, want string }{
		{"match: a name with a space", one("match: {a b: c}"), `5:11: match: attribute "a b": contains ' '`},
		{"match: a folded path with capitals", one("match: {folded_path: /Login/}"), `attribute "folded_path": is in lower case and ends in a slash: want "/login/"`},
		{"match: a folded path without a slash", one("match: {folded_path: /login}"), `is in lower case and ends in a slash: want "/login/"`},
		{"match: what folded paths begin with", one("match: {folded_path: /API/*}"), `is in lower case: want "/api/"`},
		{"a list of folded paths", one("deny: {folded_path: [/a/, /Login]}"), `5:29: deny: folded_path: "/Login": is in lower case and ends in a slash: want "/login/"`},
		{"exact: a word", one("exact: yes"), `5:10: exact: "yes": want true or false`},

		{"burst of a window", one("burst: 5"), "5:10: burst: sliding_window has none: want token_bucket or leaky_bucket"},
		{"burst 0", one("algorithm: token_bucket", "burst: 0"), `6:10: burst: "0": want a whole number from 1`},
		{"burst beyond", one("algorithm: token_bucket", "burst: 1000000000000001"), `6:10: burst: "1000000000000001": want a whole number from 1 to 1000000000000000`},

		{"a strict log", one("enforcement: strict", "algorithm: sliding_log"), "5:16: enforcement: strict enforcement grants permits per bucket beforehand, and a sliding_log counts"},
		{"a strict token bucket", one("enforcement: strict", "algorithm: token_bucket"), "5:16: enforcement: strict enforcement grants permits per bucket beforehand, and token_bucket"},
		{"a strict leaky bucket", one("enforcement: strict", "algorithm: leaky_bucket"), "5:16: enforcement: strict enforcement grants permits per bucket beforehand, and leaky_bucket"},
		{"strict and counting all", one("enforcement: strict", "count: all"), "6:10: count: all: denied hits have no permit"},
		{"a leaky bucket counting all", one("algorithm: leaky_bucket", "count: all"), "6:10: count: all: a hit that a leaky_bucket denies"},
		{"count", one("count: denied"), `5:10: count: "denied": want admitted or all`},

		{"throttle", one("throttle: rubber"), `5:13: throttle: "rubber": want hard or soft or elastic`},
		{"soft by how much", one("throttle: soft"), "2:3: soft: exceed: is missing or 0%: want more than 0%, at most 1000%"},
		{"soft by too much", one("soft: {exceed: 1000.1%}"), "5:18: soft: exceed: 1000.1%: want more than 0%"},
		{"soft: no percentage", one("soft: {exceed: 0.1}"), `5:18: soft: exceed: "0.1": want a percentage such as 10% or 12.5%`},
		{"soft: nothing", one("soft: {}"), "5:9: soft: exceed: is missing"},
		{"soft: unknown", one("soft: {by: 10%}"), `5:10: soft: unknown field "by" (want exceed)`},
		{"soft: a sign", one("soft: {exceed: -5%}"), `5:18: soft: exceed: "-5%": want a percentage such as 10% or 12.5%`},
		{"soft while hard", one("throttle: hard", "soft: {exceed: 10%}"), "6:9: soft: throttle is hard"},
		{"soft and elastic", one("soft: {exceed: 10%}", "elastic: {up_to: 200%, while: {rule: b, below: 70%}}") + other, "5:9: soft: throttle is elastic"},
		{"elastic: less", one("elastic: {up_to: 100%, while: {rule: b, below: 70%}}") + other, "5:20: elastic: up_to: 100%: want more than 100%, at most 10000%"},
		{"elastic: below nothing", one("elastic: {up_to: 200%, while: {rule: b, below: 0%}}") + other, "5:50: elastic: while: below: is missing or 0%: want more than 0%, at most 100%"},
		{"elastic: below missing", one("elastic: {up_to: 200%, while: {rule: b}}") + other, "5:33: elastic: while: below: is missing or 0%"},
		{"elastic: neither", one("elastic: {up_to: 200%, while: {below: 70%}}"), "5:33: elastic: while: rule: is missing"},
		{"elastic: a signal", one("elastic: {up_to: 200%, while: {signal: cpu, below: 70%}}"),
			`5:34: elastic: while: unknown field "signal" (want rule, below)`},
		{"elastic: no such rule", one("elastic: {up_to: 200%, while: {rule: b, below: 70%}}"), `5:40: elastic: while: rule: there is no rule "b"`},
		{"elastic: itself", one("elastic: {up_to: 200%, while: {rule: a, below: 70%}}"), `5:40: elastic: while: rule: "a" is this rule itself`},
		{"elastic: an unlimited one", one("elastic: {up_to: 200%, while: {rule: b, below: 70%}}") + "- {name: b, unlimited: true}\n", `5:40: elastic: while: rule: "b" is unlimited`},
		{"elastic: in a circle", one("elastic: {up_to: 200%, while: {rule: b, below: 70%}}") + "- {name: b, key: [], limit: 1/s, elastic: {up_to: 200%, while: {rule: a, below: 70%}}}\n",
			`5:40: elastic: while: rule: rule "b" has room while others have`},

		{"on_limit", one("on_limit: wait"), `5:13: on_limit: "wait": want reject or queue`},
		{"a queue without an end", one("on_limit: queue"), "5:13: on_limit: queue: want max_wait beside it"},
		{"max_wait for nobody", one("max_wait: 1s"), "5:13: max_wait: nobody waits: want on_limit: queue"},
		{"max_depth for nobody", one("max_depth: 5"), "5:14: max_depth: nobody waits"},
		{"max_wait: a number", one("on_limit: queue", "max_wait: 200"), `6:13: max_wait: "200": want a span such as 200ms or 2s`},
		{"max_wait: no span", one("on_limit: queue", "max_wait: 200us"), `6:13: max_wait: "200us": want a span such as 200ms or 2s`},
		{"max_wait: too long", one("on_limit: queue", "max_wait: 61m"), "6:13: max_wait: 1h1m0s: want whole milliseconds, more than 0, at most 1h0m0s"},
		{"max_depth: too deep", one("on_limit: queue", "max_wait: 1s", "max_depth: 1000001"), "7:14: max_depth: 1000001: want 1 to 1000000"},
		{"max_depth of a leaky bucket", one("algorithm: leaky_bucket", "on_limit: queue", "max_wait: 1s", "max_depth: 10"), "8:14: max_depth: how many wait for a leaky_bucket is its burst"},
		{"status", one("status: 500"), "5:11: status: 500: want 429 or 503"},
		{"shadow", one("shadow: 1"), `5:11: shadow: "1": want true or false`},
		{"cost empty", one("cost: ''"), "5:9: cost: is empty"},
		{"cost", one("cost: a b"), `5:9: cost: attribute "a b": contains ' '`},

		{"overrides: no list", one("overrides: {tier: gold}"), "5:14: overrides: want a list, got a mapping"},
		{"overrides: of nobody", one("overrides: [{limit: 10x}]"), "5:15: overrides: entry 1: match: is missing"},
		{"overrides: of everybody", one("overrides: [{match: {}, limit: 10x}]"), "5:23: overrides: entry 1: match: is missing or empty: want the attributes that say wh"},
		{"overrides: to nothing", one("overrides: [{match: {u: a}}]"), "5:15: overrides: entry 1: limit: is missing"},
		{"overrides: unknown", one("overrides: [{match: {u: a}, limit: 10x, shadow: true}]"), `5:43: overrides: entry 1: unknown field "shadow" (want match, limit, buckets, burst, until)`},
		{"overrides: a word", one("overrides: [{match: {u: a}, limit: none}]"), `5:38: overrides: entry 1: limit: "none": want a limit such as 200/second, a factor such as 10x, unlimited or blocked`},
		{"overrides: a number", one("overrides: [{match: {u: a}, limit: 10}]"), `5:38: overrides: entry 1: limit: "10": want a limit such as 200/second, a factor such`},
		{"overrides: a bad limit", one("overrides: [{match: {u: a}, limit: 10/fortnight}]"), `5:38: overrides: entry 1: limit: "10/fortnight": unknown unit`},
		{"overrides: no times", one("overrides: [{match: {u: a}, limit: 0x}]"), `5:38: overrides: entry 1: limit: "0x": want more than 0`},
		{"overrides: a strange factor", one("overrides: [{match: {u: a}, limit: 1e3x}]"), `limit: "1e3x": want a factor such as 10x or 0.5x`},
		{"overrides: too many times", one("overrides: [{match: {u: a}, limit: 1000001x}]"), "5:38: overrides: entry 1: limit: 1.000001e+06x: want 0.001x to 1000000x"},
		{"overrides: too few times", one("overrides: [{match: {u: a}, limit: 0.1x}]"), "5:38: overrides: entry 1: limit: 0.1x leaves less than one hit"},
		{"overrides: a window that cannot be cut", one("overrides: [{match: {u: a}, limit: 5/1s}, {match: {u: b}, limit: 5/7ms}]", "buckets: 10"), "5:45: overrides: entry 2: buckets: 10 buckets: 7ms cut into 10"},
		{"overrides: buckets for a factor", one("overrides: [{match: {u: a}, limit: 10x, buckets: 2}]"), "5:52: overrides: entry 1: buckets: there is no limit that this window is for"},
		{"overrides: burst of a window", one("overrides: [{match: {u: a}, limit: 5/s, burst: 9}]"), "5:50: overrides: entry 1: burst: sliding_window has none"},
		{"overrides: burst for a factor", one("algorithm: token_bucket", "overrides: [{match: {u: a}, limit: 5x, burst: 9}]"), "6:49: overrides: entry 1: burst: there is no limit that this burst is for"},
		{"overrides: until", one("overrides: [{match: {u: a}, limit: 5x, until: 2026-12-01}]"), `5:49: overrides: entry 1: until: "2026-12-01": want a time such as 2026-12-01T00:00:00Z`},
		{"overrides: until the beginning", one("overrides: [{match: {u: a}, limit: 5x, until: 0001-01-01T00:00:00Z}]"), `want a time such as`},
		{"overrides: one that is never reached", one("overrides: [{match: {u: a, v: b}, limit: 5x}, {match: {v: b, u: a}, limit: 6x}]"), "5:49: overrides: entry 2: never has an effect: entry 1 has the same match"},
		{"overrides: a name with a space", one("overrides: [{match: {u u: a}, limit: 5x}]"), `5:24: overrides: entry 1: match: attribute "u u": contains ' '`},
		{"overrides: of a rule with a long name", "rules:\n- name: " + strings.Repeat("n", 128) + "\n  key: [u]\n  limit: 1/s\n  overrides: [{match: {u: a}, limit: 5x}]\n", "5:15: overrides: entry 1: the rule's name has 128 bytes: with this override want at most 124"},
		{"overrides: a counter of another's name", "rules:\n- {name: a/u=b, key: [u], limit: 1/s}\n- {name: a, key: [u], limit: 1/s, overrides: [{match: {u: b}, limit: 5x}]}\n", `3:47: overrides: entry 1: its counter would be called "a/u=b"`},

		{"allow: a list", one("allow: [admin]"), "5:10: allow: want a mapping, got a list"},
		{"allow: a single one", one("allow: {user: admin}"), "5:17: allow: user: want a list, got a string"},
		{"allow: nobody", one("allow: {user: []}"), `5:11: allow: attribute "user": nobody is on the list`},
		{"allow: no address", one("allow: {ip: [10.0.0.0/8, localhost]}"), `5:28: allow: ip: "localhost": want an address or a prefix, such as 203.0.113.9 or 10.`},
		{"allow: a bad prefix", one("allow: {ip: [10.0.0.0/33]}"), `5:16: allow: ip: "10.0.0.0/33": want an address or a prefix, such as 203.0.113.9 or 1`},
		{"deny: bits behind", one("deny: {ip: [10.1.0.0/8]}"), `5:15: deny: ip: "10.1.0.0/8": has bits behind the prefix: want 10.0.0.0/8`},
		{"deny: IPv4 in IPv6", one("deny: {ip: ['::ffff:10.0.0.0/104']}"), `is IPv4 within IPv6: write it as IPv4`},
		{"deny: a number", one("deny: {user: [a, 1]}"), "5:20: deny: user: want a string, got a number (write it in quotes)"},
		{"deny: a name with a space", one("deny: {a b: [c]}"), `5:10: deny: attribute "a b": contains ' '`},

		{"priority: by what", one("priority: {shares: {default: 90%}}"), "5:13: priority: by: is missing"},
		{"priority: by nothing", one("priority: {by: '', shares: {default: 90%}}"), "5:18: priority: by: is missing or empty: want the attribute that says which class"},
		{"priority: shares of what", one("priority: {by: class}"), `5:13: priority: shares: want one of "default", for all other classes`},
		{"priority: no default", one("priority: {by: class, shares: {high: 100%}}"), `5:33: priority: shares: want one of "default"`},
		{"priority: more than all", one("priority: {by: class, shares: {high: 101%, default: 100%}}"), "5:40: priority: shares: high: 101%: want more than 0%, at most 100%"},
		{"priority: nothing", one("priority: {by: class, shares: {high: 0%, default: 100%}}"), "5:40: priority: shares: high: 0%: want more than 0%, at most 100%"},
		{"priority: less than a hit of the burst", one("algorithm: token_bucket", "burst: 4", "priority: {by: class, shares: {high: 20%, default: 100%}}"), "7:40: priority: shares: high: 20% of 4 leaves less than one hit"},
		{"priority: no percentage", one("priority: {by: class, shares: {high: half, default: 100%}}"), `5:40: priority: shares: high: "half": want a percentage such as 10% or 12.5%`},

		{"unlimited with a limit", one("unlimited: true"), "4:10: limit: the rule is unlimited, so this has no meaning"},
		{"unlimited, but", "rules:\n- name: a\n  unlimited: true\n  overrides: [{match: {u: a}, limit: blocked}]\n", "4:14: overrides: the rule is unlimited"},
		{"unlimited, and strict", "rules:\n- name: a\n  unlimited: true\n  enforcement: strict\n", "4:16: enforcement: the rule is unlimited"},
		{"replaces none", one("replaces: [b]"), `5:14: replaces: there is no rule "b"`},
		{"replaces itself", one("replaces: [a]"), `5:14: replaces: "a" is this rule itself`},
		{"replaces twice", one("replaces: [b, b]") + "- {name: b, unlimited: true}\n", `5:17: replaces: "b" occurs twice`},
		{"replaces in a circle", one("replaces: [b]") + "- {name: b, unlimited: true, replaces: [a]}\n", "replaces: the rules that this one replaces replace it"},
	} {
		refuses(t, tt.why, tt.yaml, tt.want)
	}
}
