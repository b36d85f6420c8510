data {
  int<lower=1> n;
  int<lower=2> K;
  vector[n] x;
  array[n] int<lower=1, upper=K> grade;
}
parameters {
  real slope;
  ordered[K - 1] cut;
}
model {
  slope ~ normal(0, 1);
  cut ~ normal(0, 2);
  grade ~ ordered_logistic(slope * x, cut);
}
