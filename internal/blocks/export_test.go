package blocks

// SetMost makes a bucket take so many entries only.
func (b *Bucket) SetMost(n int) { b.most = n }
