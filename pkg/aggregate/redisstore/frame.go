package redisstore

import (
	"slices"
	"strconv"
)

// frame is what all calls of a script have in common: the names of its keys, and one argument that
// is packed. It keeps its memory for the next call. One goroutine uses it at a time.
type frame struct {
	pre   string   // what the names of all the shard's keys begin with
	names []byte   // the names of all keys, one after the other
	ends  []int    // where in names each ends
	keys  []string // the same, as strings
	args  []any    // pointers to keys, which take no memory of their own as arguments
	body  []byte
	blob  string
	chain [6]string // further arguments
}

// begin begins a call for a shard.
func (f *frame) begin(namespace string, shard uint32) {
	f.pre = prefix(namespace, shard)
	f.names, f.ends = f.names[:0], f.ends[:0]
}

// name adds a key of the script: the next in KEYS.
func (f *frame) name(parts ...string) {
	f.names = append(f.names, f.pre...)
	for _, p := range parts {
		f.names = append(f.names, p...)
	}
	f.ends = append(f.ends, len(f.names))
}

// finish makes the script's arguments from the packed body.
func (f *frame) finish() {
	all, from := string(f.names), 0
	f.keys = f.keys[:0]
	for _, end := range f.ends {
		f.keys = append(f.keys, all[from:end])
		from = end
	}
	f.blob = string(f.body)
	f.args = slices.Grow(f.args[:0], len(f.keys)+8)
	f.args = append(f.args, "evalsha", "", len(f.keys), f.keys[0])
	for i := range f.keys[1:] {
		f.args = append(f.args, &f.keys[1+i])
	}
	f.args = append(f.args, &f.blob)
}

// expect adds what the script is to find, the id of the batch, whether what the call was made by is
// of this state, and how many batches of this process the script is to find.
func (f *frame) expect(c chain, id string, current bool, own int64) {
	f.chain = [...]string{c.generation, c.version, c.last, id, "", strconv.FormatInt(own, 10)}
	if current {
		f.chain[4] = "1"
	}
	for i := range f.chain {
		f.args = append(f.args, &f.chain[i])
	}
}
