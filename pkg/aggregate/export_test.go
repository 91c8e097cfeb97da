package aggregate

// WireRule is how reports describe a rule.
var WireRule = wireRule
