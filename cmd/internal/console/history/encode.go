package history

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
)

// file is a history as it is kept: JSON, compressed.
type file struct {
	Version int         `json:"version"`
	Tracks  []fileTrack `json:"tracks"`
	// Last is when something last came of a rule, in Unix nanoseconds.
	Last map[string]int64 `json:"last"`
}

type fileTrack struct {
	Name   string                `json:"name"`
	Number []int64               `json:"number"`
	Heard  []float64             `json:"heard"`
	All    fileSeries            `json:"all"`
	Rules  map[string]fileSeries `json:"rules,omitempty"`
}

// fileSeries has the five numbers of all slots; a list of nothing but zeros is left out.
type fileSeries [5][]float64

const (
	// Version is that of the format.
	Version = 1
	// maxFile bounds what a history may have when it is unpacked, in bytes.
	maxFile = 32 << 20
)

// ErrRecord is for what is no history.
var ErrRecord = errors.New("not a history")

// Encode returns the history in at most so many bytes: without the rules, if it has more with them.
func (h *History) Encode(most int) ([]byte, error) {
	c := h.clone()
	data, err := c.encode()
	if err == nil && len(data) > most {
		for _, t := range c.tracks {
			t.rules = nil
		}
		c.last = nil
		data, err = c.encode()
	}
	if err == nil && len(data) > most {
		err = fmt.Errorf("a history of %d bytes is longer than %d", len(data), most)
	}
	return data, err
}

func (h *History) encode() ([]byte, error) {
	f := file{Version: Version, Last: h.last}
	for _, t := range h.tracks {
		one := fileTrack{
			Name: t.Name, Number: t.number, Heard: make([]float64, t.Slots), All: seriesOf(t.all), Rules: make(map[string]fileSeries),
		}
		for i, seconds := range t.heard {
			one.Heard[i] = rounded(seconds)
		}
		for name, list := range t.rules {
			one.Rules[name] = seriesOf(list)
		}
		f.Tracks = append(f.Tracks, one)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := json.NewEncoder(w).Encode(f); err != nil {
		return nil, err
	}
	err := w.Close()
	return packed.Bytes(), err
}

func seriesOf(points []Point) (s fileSeries) {
	for i, p := range points {
		for k, v := range [...]float64{p.Allowed, p.Denied, p.Over, p.False, p.Lost} {
			if v = rounded(v); v != 0 {
				if s[k] == nil {
					s[k] = make([]float64, len(points))
				}
				s[k][i] = v
			}
		}
	}
	return s
}

// rounded leaves as many digits as anybody reads.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// Decode reads what Encode has written. The error wraps ErrRecord.
func Decode(data []byte) (*History, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if f.Version != Version || len(f.Tracks) != len(Spans) || len(f.Last) > MaxRules {
		return nil, fmt.Errorf("%w: version %d, %d spans, %d rules", ErrRecord, f.Version, len(f.Tracks), len(f.Last))
	}
	h := New()
	maps.Copy(h.last, f.Last)
	for i, one := range f.Tracks {
		if err := h.tracks[i].fill(one, f.Last); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// fill takes the rules that are among the known ones.
func (t *track) fill(one fileTrack, known map[string]int64) error {
	if one.Name != t.Name || len(one.Number) != t.Slots || len(one.Heard) != t.Slots {
		return fmt.Errorf("%w: span %.20q with %d slots", ErrRecord, one.Name, len(one.Number))
	}
	for i, n := range one.Number {
		if n < 0 || n > 0 && n%int64(t.Slots) != int64(i) {
			return fmt.Errorf("%w: slot %d at place %d", ErrRecord, n, i)
		}
	}
	copy(t.number, one.Number)
	copy(t.heard, one.Heard)
	if err := one.All.fill(t.all); err != nil {
		return err
	}
	for name, s := range one.Rules {
		if _, ok := known[name]; !ok {
			continue
		}
		if err := s.fill(t.of(name)); err != nil {
			return err
		}
	}
	return nil
}

func (s fileSeries) fill(points []Point) error {
	for k, list := range s {
		if list != nil && len(list) != len(points) {
			return fmt.Errorf("%w: a series of %d slots", ErrRecord, len(list))
		}
		for i, v := range list {
			p := &points[i]
			*[...]*float64{&p.Allowed, &p.Denied, &p.Over, &p.False, &p.Lost}[k] = v
		}
	}
	return nil
}
