package reporter

const (
	Repeated Event = iota + 1
	Refused
	Answered
	Merged
	GivenUp
)

// trace asks whether a report that has just been made is to be traced.
func (f *inFlightReport) trace(t Tracing, number uint32) {
	f.message.Trace, f.follow = "", nil
	if t != nil {
		f.message.Trace, f.follow = t(number, f.sequence, len(f.rows))
	}
}

// tell tells whoever follows the report.
func (f *inFlightReport) tell(e Event) {
	if f.follow != nil {
		f.follow(e)
	}
}
