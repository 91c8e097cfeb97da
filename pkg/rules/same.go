package rules

// Same reports whether two rules of Sets say the same, wherever they stand.
func (r *Rule) Same(other *Rule) bool { return r == other || same(r, other) }
