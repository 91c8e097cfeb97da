package storage

import (
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/window"
)

func TestDivide(t *testing.T) {
	for _, test := range []struct {
		room        int64
		wants, want []int64
	}{
		{0, []int64{1, 2}, []int64{0, 0}},
		{-1, []int64{1}, []int64{0}},
		{5, nil, []int64{}},
		{3, []int64{1, 2}, []int64{1, 2}},
		{2, []int64{1, 2}, []int64{1, 1}}, // 0.67, 1.33
		{1e15, []int64{1e15, 1e15, 1e15}, []int64{333_333_333_333_334, 333_333_333_333_333, 333_333_333_333_333}},
	} {
		if got := Divide(test.room, test.wants); !slices.Equal(got, test.want) {
			t.Errorf("%d among %v: got %v, want %v", test.room, test.wants, got, test.want)
		}
	}
}

// Counts ahead of now are of the current bucket; LayOut leaves out those that no window shares.
func TestCountsByAge(t *testing.T) {
	shape := window.Shape{Length: 2, Buckets: 2}
	cells := []Cell{{7, 64}, {8, 1}, {9, 2}, {10, 4}, {11, 8}, {13, 16}}
	if got := ByAge([]int64{9, 9}, shape, cells, 10); !slices.Equal(got, []int64{28, 2, 1}) {
		t.Errorf("by age: %v", got)
	}
	if got := LayOut(nil, shape, cells, 10); !slices.Equal(got, []int64{12, 2, 1}) {
		t.Errorf("for permits: %v", got)
	}
}
