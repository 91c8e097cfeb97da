package storage

import (
	"slices"
	"testing"
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
