package rules

// Place is where the rule stands in its Set, from 0; -1 if it is in none, as a copy of a Set's rule is.
func (r *Rule) Place() int {
	if r.in == nil || r.in.rule != r {
		return -1
	}
	return r.in.place
}

// Same reports whether two rules of Sets say the same, wherever they stand.
func (r *Rule) Same(other *Rule) bool { return r == other || same(r, other) }
